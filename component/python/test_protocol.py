"""What a caller learns when a request had no answer, or was never sent. The argument is the component `protocol`."""

import os
import sys

for name in list(os.environ):
    if name.startswith("AWS_"):
        del os.environ[name]
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = "/nowhere"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

import boto3
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from lambda_lock_protocol import Locks, config
from wit import Refused


def failure(**settings):
    dynamodb = boto3.client(
        "dynamodb", region_name="eu-central-1", endpoint_url="http://127.0.0.1:1", config=config(), **settings
    )
    try:
        Locks(sys.argv[1], dynamodb, table="locks").peek("k")
    except Exception as error:
        return error


unknown = failure(aws_access_key_id="id", aws_secret_access_key="secret")
assert isinstance(unknown, Refused) and unknown.kind == "unknown", repr(unknown)
assert isinstance(unknown.__cause__, EndpointConnectionError), repr(unknown.__cause__)

unsent = failure()
assert isinstance(unsent, NoCredentialsError), repr(unsent)
print("protocol.py: an unknown outcome has its cause, and what was never sent is none")
