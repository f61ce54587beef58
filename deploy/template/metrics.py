"""Are these lines metrics? python deploy/template/metrics.py < LINES

Holds each line against the embedded metric format as CloudWatch specifies it
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).
CloudWatch reads no metric from a line that breaks these rules, and tells nobody.
"""

import json
import sys
import time

import jsonschema

NAME = {"type": "string", "minLength": 1, "maxLength": 1024}
UNITS = ["Seconds", "Microseconds", "Milliseconds", "Count", "Percent", "None", "Bytes", "Kilobytes", "Megabytes"]
METRIC = {
    "type": "object",
    "required": ["Name"],
    "additionalProperties": False,
    "properties": {"Name": NAME, "Unit": {"enum": UNITS}, "StorageResolution": {"enum": [1, 60]}},
}
DIRECTIVE = {
    "type": "object",
    "required": ["Namespace", "Dimensions", "Metrics"],
    "properties": {
        "Namespace": {**NAME, "pattern": "^(?!AWS/)"},
        "Dimensions": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "array", "maxItems": 30, "items": {"type": "string", "minLength": 1, "maxLength": 250}},
        },
        "Metrics": {"type": "array", "minItems": 1, "maxItems": 100, "items": METRIC},
    },
}
LINE = {
    "type": "object",
    "required": ["_aws"],
    "properties": {
        "_aws": {
            "type": "object",
            "required": ["Timestamp", "CloudWatchMetrics"],
            "properties": {
                "Timestamp": {"type": "integer"},
                "CloudWatchMetrics": {"type": "array", "minItems": 1, "items": DIRECTIVE},
            },
        }
    },
}
# The time of a line may be up to two weeks in the past and up to two hours in the future.
OLDEST, NEWEST = 14 * 24 * 3600, 2 * 3600


def findings(line, now):
    validator = jsonschema.Draft202012Validator(LINE)
    broken = [error.message for error in validator.iter_errors(line)]
    if broken:
        yield from broken
        return
    age = now - line["_aws"]["Timestamp"] / 1000
    if not -NEWEST <= age <= OLDEST:
        yield f"the line is {age:.0f} s old"
    for directive in line["_aws"]["CloudWatchMetrics"]:
        for dimension in {name for names in directive["Dimensions"] for name in names}:
            value = line.get(dimension)
            if not isinstance(value, str) or not value.strip() or len(value) > 1024 or not value.isascii():
                yield f"the dimension {dimension} is {value!r}"
        for metric in directive["Metrics"]:
            value = line.get(metric["Name"])
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                yield f"the metric {metric['Name']} is {value!r}"


def main():
    lines = [json.loads(line) for line in sys.stdin if line.strip()]
    found = [finding for line in lines for finding in findings(line, time.time())]
    for finding in found:
        print(finding, file=sys.stderr)
    if found or not lines:
        sys.exit("no valid metrics" if lines else "no line")
    print(f"{len(lines)} lines of metrics")


if __name__ == "__main__":
    main()
