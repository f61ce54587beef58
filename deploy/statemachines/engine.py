"""A Step Functions engine on this machine: python deploy/statemachines/engine.py LAMBDA-ENDPOINT

moto's engine behind a loopback port that the system chooses. Prints the port, invokes functions at the
endpoint, and ends when its standard input does: with whoever started it, however that ended.
"""

import logging
import os
import sys
import threading

import boto3
from botocore.config import Config
from moto.core.config import default_user_config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.stepfunctions.parser.asl.component.state.exec.execute_state import ExecutionState
from moto.stepfunctions.parser.asl.component.state.exec.state_task import lambda_eval_utils
from werkzeug.serving import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    """Does not write a line for each request."""

    def log_request(self, *_):
        pass


def functions(endpoint):
    """One client for all threads: boto3 must not make clients in several of them at once."""
    return boto3.client(
        "lambda",
        endpoint_url=endpoint,
        region_name="eu-central-1",
        aws_access_key_id="engine",
        aws_secret_access_key="engine",
        # Retries belong to the state machine.
        config=Config(retries={"total_max_attempts": 1}, read_timeout=900, max_pool_connections=128),
    )


def count_retries_by_visit():
    """A retrier's parameters apply within one visit of its state, says the States Language; moto counts on
    through all visits, so that a state that waits in a loop would run out of retries."""
    evaluate = ExecutionState._eval_state

    def from_nothing(state, env):
        for retrier in state.retry.retriers if state.retry else []:
            env.heap.pop(retrier.max_attempts._attempt_number_key(), None)
            env.heap.pop(retrier.backoff_rate._next_multiplier_key(), None)
        evaluate(state, env)

    ExecutionState._eval_state = from_nothing


def main(endpoint):
    # What went wrong in an execution stands in its description.
    logging.disable()
    count_retries_by_visit()
    client = functions(endpoint)
    lambda_eval_utils.boto_client_for = lambda **_: client
    default_user_config["stepfunctions"]["execute_state_machine"] = True
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()
    # Executions run in threads that would go on.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
