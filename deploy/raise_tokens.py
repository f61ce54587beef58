"""Raises the fencing tokens of a restored lock table above all that were ever given.

    python raise_tokens.py --table NAME            shows how many rows have an older token, and changes nothing
    python raise_tokens.py --table NAME --write    raises them

A restored table has the tokens of an earlier time, so it would give tokens again that were given since. A token is never
larger than the time in milliseconds since 1970 at which it was given, by the clock of the caller. So each token that is smaller
than the time in an hour becomes that. If a caller's clock was ahead by more than an hour, give a larger --margin.
No caller may use the table meanwhile (docs/operations.md#restore-the-table). A row that has changed since it was read is
left as it is if its token is large enough. A row whose token is no number is no lock record: it is named and left. Needs boto3, dynamodb:DescribeTable, dynamodb:Scan, and with --write
dynamodb:UpdateItem. It can be run again at any time.
"""

import argparse
import sys
import time
from decimal import Decimal

import boto3
from botocore.exceptions import BotoCoreError, ClientError

TOKEN = "fencingToken"


def older(table, floor):
    """The keys of the rows whose token is smaller."""
    names = [one["AttributeName"] for one in table.key_schema]
    aliases = {f"#k{number}": name for number, name in enumerate(names)}
    scan = {
        "ProjectionExpression": ", ".join([*aliases, "#token"]),
        "ExpressionAttributeNames": {**aliases, "#token": TOKEN},
        "ConsistentRead": True,
    }
    seen = 0
    while True:
        page = table.scan(**scan)
        seen += len(page["Items"])
        print(f"{seen} rows read", file=sys.stderr)
        for row in page["Items"]:
            key = {name: row[name] for name in names}
            if TOKEN in row and not isinstance(row[TOKEN], Decimal):
                print(f"{key} has a token that is no number: {str(row[TOKEN])[:64]!r}", file=sys.stderr)
            elif TOKEN in row and row[TOKEN] < floor:
                yield key
        if "LastEvaluatedKey" not in page:
            return
        scan["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def raise_token(table, key, floor):
    """Whether the row had an older token still."""
    try:
        table.update_item(
            Key=key,
            UpdateExpression="SET #token = :floor",
            ConditionExpression="#token < :floor",
            ExpressionAttributeNames={"#token": TOKEN},
            ExpressionAttributeValues={":floor": floor},
        )
        return True
    except ClientError as error:
        if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
            return False
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", required=True, help="the name or ARN of the restored table")
    parser.add_argument("--margin", type=float, default=1, help="by how many hours a caller's clock may have been ahead (1)")
    parser.add_argument("--write", action="store_true", help="raise the tokens")
    arguments = parser.parse_args()
    floor = int((time.time() + arguments.margin * 3600) * 1000)
    try:
        table = boto3.resource("dynamodb").Table(arguments.table)
        found = raised = 0
        for key in older(table, floor):
            found += 1
            if arguments.write:
                raised += raise_token(table, key, floor)
    except (BotoCoreError, ClientError) as error:
        sys.exit(f"{arguments.table}: {error}")
    if arguments.write:
        print(f"{raised} tokens were raised to {floor}")
    else:
        print(f"{found} rows have an older token: raise them with --write")


if __name__ == "__main__":
    main()
