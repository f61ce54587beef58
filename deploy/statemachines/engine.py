"""A Step Functions engine on this machine: python deploy/statemachines/engine.py LAMBDA-ENDPOINT [DYNAMODB-ENDPOINT]

MiniStack's Step Functions behind a loopback port that the system chooses. Prints the port, invokes functions at the
first endpoint, sends the requests of `dynamodb:` and `aws-sdk:dynamodb:` tasks to the second one, and ends when its
standard input does: with whoever started it, however that ended. `walk.py` executes the definitions.
"""

import asyncio
import copy
import http.client
import http.server
import importlib.metadata
import json
import logging
import os
import sys
import threading
import time
import urllib.parse

# walk.py and this file reach into one version of MiniStack. `tools` installs the same one.
PINNED = "1.5.33"


def installed():
    """The version of MiniStack that is installed, or what to say instead."""
    try:
        return importlib.metadata.version("ministack")
    except importlib.metadata.PackageNotFoundError:
        return "none"


if installed() != PINNED:
    sys.exit(f"MiniStack {PINNED} is needed, and {installed()} is installed: run deploy/statemachines/tools")

# As in tools/local/src/lambda. MiniStack reads both when it is imported.
REGION, ACCOUNT = "eu-central-1", "123456789012"
os.environ.update(MINISTACK_REGION=REGION, MINISTACK_ACCOUNT_ID=ACCOUNT, LOG_LEVEL="ERROR")

from ministack.core.responses import error_response_json, json_response
from ministack.services import stepfunctions as sfn

import callback
from walk import Failure, Run

# Which names an error of DynamoDB begins with, for each of the two integrations.
DYNAMODB = {"arn:aws:states:::dynamodb:": "DynamoDB", "arn:aws:states:::aws-sdk:dynamodb:": "DynamoDb"}


def ask(endpoint, path, body, headers):
    """One request on a connection of its own. Returns the status, the headers and the text of the response."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(endpoint).netloc, timeout=900)
    try:
        connection.request("POST", path, body.encode(), headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def functions(endpoint):
    """Invokes functions there, and names their errors as Step Functions does."""

    def invoke(function, event):
        path = f"/2015-03-31/functions/{urllib.parse.quote(function, safe='')}/invocations"
        try:
            status, headers, text = ask(endpoint, path, json.dumps(event), {"X-Amz-Log-Type": "None"})
        except OSError as error:
            raise Failure("Lambda.SdkClientException", str(error)) from None
        if status >= 300:
            name = headers.get("X-Amzn-ErrorType", "AWSLambdaException").split(":")[0]
            raise Failure(f"Lambda.{name}", text)
        try:
            answer = json.loads(text) if text else None
        except ValueError:
            answer = text
        if headers.get("X-Amz-Function-Error"):
            named = answer.get("errorType") if isinstance(answer, dict) else None
            raise Failure(named or "Lambda.Unknown", text)
        return answer

    sfn._call_lambda = invoke
    sfn._resolve_lambda_function_ref = lambda reference, optimized=False: reference


def dynamodb(endpoint):
    """Sends requests there. Of a refusal only its name and message reach a state machine, never the item."""

    def integration(prefix):
        def send(resource, request):
            operation = resource.split(":")[-1]
            headers = {
                "Content-Type": "application/x-amz-json-1.0",
                "X-Amz-Target": f"DynamoDB_20120810.{operation[0].upper()}{operation[1:]}",
                "X-Amz-Date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
                "Authorization": f"AWS4-HMAC-SHA256 Credential=engine/20260701/{REGION}/dynamodb/aws4_request, "
                                 "SignedHeaders=host;x-amz-date;x-amz-target, Signature=00",
            }
            try:
                status, _, text = ask(endpoint, "/", json.dumps(request), headers)
                answer = json.loads(text or "{}")
            except (OSError, ValueError) as error:
                raise Failure(f"{prefix}.SdkClientException", str(error)) from None
            if status >= 300:
                name = answer.get("__type", "AmazonDynamoDBException").rsplit("#", 1)[-1]
                raise Failure(f"{prefix}.{name}", answer.get("message") or answer.get("Message") or "")
            return answer
        return send

    for resource, prefix in DYNAMODB.items():
        # Before MiniStack's own, which begin in the same way.
        sfn._SERVICE_DISPATCH = {resource: integration(prefix), **sfn._SERVICE_DISPATCH}


def leads_nowhere(machine):
    """Returns the first state that a definition names and does not have."""
    states = machine.get("States", {})
    named = [machine.get("StartAt")]
    for state in states.values():
        rules = [state, *state.get("Choices", []), *state.get("Catch", [])]
        named += [rule[field] for rule in rules for field in ("Next", "Default") if field in rule]
        for inner in [state.get("ItemProcessor"), *state.get("Branches", [])]:
            if inner and (found := leads_nowhere(inner)) is not None:
                return found
    return next((name for name in named if name not in states), None)


def create(request):
    machine = json.loads(request["definition"])
    if machine.get("QueryLanguage") != "JSONata":
        return error_response_json("InvalidDefinition", "this engine executes JSONata only: set QueryLanguage", 400)
    missing = leads_nowhere(machine)
    return missing and error_response_json("InvalidDefinition", f"the definition has no state {missing!r}", 400)


def run(arn):
    record = sfn._executions[arn]
    record["run"] = Run(record, sfn._state_machines[record["stateMachineArn"]])
    record["run"].run()


def stop(request):
    record = sfn._executions[request["executionArn"]]
    while "run" not in record:
        time.sleep(0.001)
    record["run"].end("ABORTED", "ExecutionAborted", request.get("error"), request.get("cause"))
    return json_response({"stopDate": record["stopDate"]})


def redrive(request):
    """Continues in the state in which the execution ended, with its input and its variables."""
    record = sfn._executions[request["executionArn"]]
    if record["status"] not in ("FAILED", "ABORTED", "TIMED_OUT"):
        return error_response_json("ExecutionNotRedrivable", f"the execution has the status {record['status']}", 400)
    record["redrives"] = record.get("redrives", 0) + 1
    record.update(status="RUNNING", stopDate=None, error=None, cause=None, frames=copy.deepcopy(record["frames"]))
    record["run"] = Run(record, sfn._state_machines[record["stateMachineArn"]])
    sfn._add_event(record, "ExecutionRedriven", {"executionRedrivenEventDetails": {"redriveCount": record["redrives"]}})
    threading.Thread(target=record["run"].run, daemon=True).start()
    return json_response({"redriveDate": sfn.now_iso()})


def history(request):
    events, first = sfn._executions[request["executionArn"]]["events"], int(request.get("nextToken", 0))
    following = first + min(request.get("maxResults") or 100, 1000)
    page = {"events": events[first:following]}
    return json_response(page if following >= len(events) else {**page, "nextToken": str(following)})


ACTIONS = {
    "CreateStateMachine": create, "StopExecution": stop, "RedriveExecution": redrive, "GetExecutionHistory": history,
    **callback.ACTIONS,
}


class Api(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        action = headers.get("x-amz-target", "").split(".")[-1]
        try:
            answered = action in ACTIONS and ACTIONS[action](json.loads(body))
            answered = answered or asyncio.run(sfn.handle_request("POST", self.path, headers, body, {}))
        except KeyError as missing:
            answered = error_response_json("ExecutionDoesNotExist", f"there is no {missing}", 400)
        status, headers, body = answered
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Does not write a line for each request."""


def main(lambda_endpoint, dynamodb_endpoint=None):
    # What went wrong in an execution stands in its description.
    logging.disable()
    sfn._run_execution = run
    functions(lambda_endpoint)
    if dynamodb_endpoint:
        dynamodb(dynamodb_endpoint)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    # Executions run in threads that would go on.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
