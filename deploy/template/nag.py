"""What do the rules of cdk-nag say of the template? python deploy/template/nag.py TEMPLATE

Expands the template with all that it has and holds it against the packs AwsSolutions and Serverless. What they may find is in
ACCEPTED and WILDCARDS, each with a reason. A reason for what they do not find any more is a failure too.
"""

import json
import sys
import tempfile

from aws_cdk import App, Stack, Validations, cloudformation_include
from cdk_nag import AwsSolutionsChecks, ServerlessChecks

from expansion import Expansion

EVERYTHING = {
    "SampleWithoutLockTask": "true",
    "CleansDurableExecutions": "true",
    "WakeByStream": "true",
    "Tracing": "Active",
    "LogStateMachines": "ALL",
    "Metrics": "prefix",
    "TableDeletionProtection": "true",
}
# What is found, and why it is so. A rule is named without the finding in its brackets.
ACCEPTED = {
    "AwsSolutions-IAM4": "AWSLambdaBasicExecutionRole and the policies of X-Ray are what SAM attaches, and what AWS documents for functions.",
    "AwsSolutions-DDB3": "WorkTable has the counters of a sample. The other tables have point-in-time recovery.",
    "AwsSolutions-SQS3": "The queue is where EventBridge and Lambda send what failed. The rule knows only queues that a queue sends to.",
    "Serverless-SQSRedrivePolicy": "Dead letters stay where they are until somebody looks at them.",
    "Serverless-LambdaDLQ": "Asynchronous invocations have a destination for what failed, which the rule does not see. The others are synchronous.",
    "Serverless-LambdaEventSourceMappingDestination": "A queue has its dead-letter queue. Of the stream nothing is kept: who was not woken looks by itself.",
}
# Each wildcard, who has it, and why.
WILDCARDS = {
    "AwsSolutions-IAM5[Resource::*]": (
        {"StateMachineTraces", "StateMachineLogDelivery"},
        "X-Ray and the delivery of a state machine's logs have no resources to name; AWS documents both policies with *.",
    ),
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:stateMachine:*]": (
        {"LockTaskRole", "LockCleanerRole", "LockWakerRole"},
        "Any state machine of the account may wait in line. Only who has a task token can end a wait.",
    ),
}


def found_in(path):
    """(rule, what it says, resources) of each finding."""
    expansion = Expansion(path, **EVERYTHING)
    resources = {name: {key: one[key] for key in one if key != "Condition"} for name, one in expansion.resources.items()}
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/template.json", "w", encoding="utf-8") as file:
            json.dump({"Resources": expansion.with_values(resources)}, file)
        app = App(outdir=f"{folder}/out")
        cloudformation_include.CfnInclude(Stack(app, "stack"), "template", template_file=file.name)
        Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
        try:
            app.synth()
        except RuntimeError as error:
            # This is how it says that it found something.
            if "Validation failed" not in str(error):
                raise
        with open(f"{folder}/out/validation-report.json", encoding="utf-8") as file:
            report = json.load(file)
    for pack in report["pluginReports"]:
        for one in pack["violations"]:
            yield one["ruleName"], one["description"], [at["constructPath"].split("/")[-1] for at in one["violatingConstructs"]]


def main(path):
    accepted, failed = set(), False
    for rule, says, resources in found_in(path):
        name = rule.split("[")[0]
        if rule in WILDCARDS and set(resources) == WILDCARDS[rule][0]:
            accepted.add(rule)
        elif name in ACCEPTED:
            accepted.add(name)
        else:
            failed = True
            print(f"{rule}: {', '.join(resources)}: {says}", file=sys.stderr)
    for name in sorted({*ACCEPTED, *WILDCARDS} - accepted):
        failed = True
        print(f"{name} is not found any more as it was accepted: correct the list", file=sys.stderr)
    if failed:
        sys.exit(1)
    print(f"nothing but {len(accepted)} findings that are accepted with a reason")


if __name__ == "__main__":
    main(sys.argv[1])
