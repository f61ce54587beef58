"""Executes a definition in JSONata as Step Functions documents it: states, retries, catches, timeouts, maps, stops and
redrives.

MiniStack brings the API, the store, JSONata, and the services that a task may call. Its own walk through a definition
differs from Step Functions (errors that nothing can catch, quotas, timeouts, stops, redrives, variables of a Map, tasks
that wait for a callback), so the walk is written here. Sources are in the guide
https://docs.aws.amazon.com/step-functions/latest/dg/: the pages concepts-error-handling, service-quotas,
transforming-data, workflow-variables, redrive-executions and connect-to-resource. `callback.py` has the task tokens.
"""

import contextvars
import copy
import json
import math
import queue
import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

from ministack.services import stepfunctions as sfn

from callback import Callback

# Bytes of a payload, as JSON in UTF-8.
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_HISTORY = 25_000
# The timeout of a task or an execution that was given none.
FOREVER = 99_999_999
# The end of the resource of a task that waits for a callback.
WAITS = ".waitForTaskToken"
Failure = sfn._ExecutionError


class Stopped(BaseException):
    """The execution, or the map around this iteration, has ended. No state begins any more."""


class Cancel:
    """Ends the waits of a walk, and of the walks inside it."""

    def __init__(self, outer=None):
        self._lock, self._waits, self._inner, self._over = threading.Lock(), set(), [], False
        if outer:
            outer._adopt(self)

    def _adopt(self, inner):
        with self._lock:
            self._inner.append(inner)
            over = self._over
        if over:
            inner.cancel()

    def cancel(self):
        with self._lock:
            self._over, waits, inner = True, list(self._waits), list(self._inner)
        for wait in waits:
            wait.put(None)
        for one in inner:
            one.cancel()

    def is_over(self):
        return self._over

    def check(self):
        if self._over:
            raise Stopped

    def result(self, begin, seconds):
        """Returns what `begin` puts into its queue. Raises queue.Empty after these seconds, and Stopped after a cancel."""
        answer = queue.SimpleQueue()
        with self._lock:
            self._waits.add(answer)
        try:
            self.check()
            begin(answer)
            got = answer.get(timeout=min(seconds, threading.TIMEOUT_MAX))
            self.check()
            return got
        finally:
            with self._lock:
                self._waits.discard(answer)

    def sleep(self, seconds):
        try:
            self.result(lambda _: None, seconds)
        except queue.Empty:
            pass


class TooLarge(Failure):
    """The answer of a task is too large. Only a Catch that names this error sees it."""


def limited(value, what, error=Failure):
    """Refuses what is larger than a payload may be."""
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
    if size > MAX_PAYLOAD_BYTES:
        raise error("States.DataLimitExceeded", f"{what} has {size} bytes, more than the {MAX_PAYLOAD_BYTES} of a payload")
    return value


def matches(names, failure):
    """Whether a Retry or a Catch with these names sees this failure."""
    error = failure.error
    if error in ("States.Runtime", "States.DataLimitExceeded"):
        return isinstance(failure, TooLarge) and error in names
    return error in names or "States.ALL" in names or ("States.TaskFailed" in names and error != "States.Timeout")


class Run:
    """An execution from its start, or from a redrive, to its end."""

    def __init__(self, record, machine):
        self.record, self.machine = record, machine
        self.definition = json.loads(machine["definition"])
        self.cancel, self._lock = Cancel(), threading.RLock()
        # Where each walk of the execution is: the state, its input and variables, or the output once it has ended.
        self.frames = record.setdefault("frames", {})

    def end(self, status, event, error=None, cause=None, output=None):
        """Ends the execution, unless it has ended. What still runs has no effect any more."""
        with self._lock:
            if not self.is_running():
                return
            self.record.update(status=status, error=error, cause=cause, stopDate=sfn.now_iso())
            self.record["output"] = None if output is None else json.dumps(output)
            sfn._add_event(self.record, event)
        self.cancel.cancel()

    def event(self, kind, **details):
        with self._lock:
            # The last event is that of the end.
            if len(self.record["events"]) >= MAX_HISTORY - 1:
                raise Failure("States.Runtime", f"the execution reached the maximum number of history events ({MAX_HISTORY})")
            if self.is_running():
                sfn._add_event(self.record, kind, details)

    def is_running(self):
        """Whether nothing has ended this run, and no redrive has begun another one."""
        return self.record["status"] == "RUNNING" and self.record["run"] is self

    def run(self):
        seconds = self.definition.get("TimeoutSeconds", FOREVER)
        timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), lambda: self.end("TIMED_OUT", "ExecutionTimedOut"))
        timer.daemon = True
        timer.start()
        try:
            given = json.loads(self.record["input"])
            walk = Walk(self, self.definition, self.cancel, place="", arn=self.record["executionArn"])
            self.end("SUCCEEDED", "ExecutionSucceeded", output=walk.run(given, {}))
        except Stopped:
            pass
        except Failure as failure:
            self.end("FAILED", "ExecutionFailed", failure.error, failure.cause)
        except Exception as bug:
            self.end("FAILED", "ExecutionFailed", "States.Runtime", repr(bug))
        finally:
            timer.cancel()


class Walk:
    """One way through states: of the execution, of an iteration of a Map or of a branch of a Parallel."""

    def __init__(self, run, machine, cancel, place, arn, item=None, loud=True):
        self._run, self._states, self._start = run, machine["States"], machine["StartAt"]
        self._cancel, self._place, self._arn, self._item = cancel, place, arn, item
        # A child execution of a distributed Map has a history of its own.
        self._loud = loud

    def run(self, given, variables):
        """Returns the output of the last state. A redrive goes on in the state that had not ended."""
        frames = self._run.frames
        frame = frames.get(self._place)
        if frame and "output" in frame:
            return frame["output"]
        name = self._start
        if frame:
            name, given, variables = frame["state"], frame["input"], frame["variables"]
        while name:
            self._cancel.check()
            if not frame or frame["state"] != name:
                self._forget_inner()
            frame = frames[self._place] = {"state": name, "input": given, "variables": variables}
            state = self._states[name]
            self._event(f"{state['Type']}StateEntered", stateEnteredEventDetails={"name": name, "input": json.dumps(given)})
            given, variables, following = Visit(self, name, state, given, variables).execute()
            self._cancel.check()
            self._event(f"{state['Type']}StateExited", stateExitedEventDetails={"name": name, "output": json.dumps(given)})
            frame, name = None, following
        frames[self._place] = {"state": None, "output": given}
        return given

    def _forget_inner(self):
        inner = [place for place in self._run.frames if place.startswith(self._place + "/")]
        for place in inner:
            del self._run.frames[place]

    def machine(self):
        """The name of the state machine."""
        return self._run.machine["name"]

    def goes_on(self):
        """Whether nothing has ended the execution or this way through it."""
        return self._run.is_running() and not self._cancel.is_over()

    def _event(self, kind, **details):
        if self._loud:
            self._run.event(kind, **details)


class Visit:
    """One visit of a state."""

    def __init__(self, walk, name, state, given, variables):
        self._walk, self._name, self._state, self._given, self._variables = walk, name, state, given, variables
        self._retries, self._entered, self._callback = 0, sfn.now_iso(), None

    def execute(self):
        """Returns the output, the variables after the state, and the name of the next state."""
        return getattr(self, f"_{self._state['Type'].lower()}")()

    # States that cannot catch.

    def _pass(self):
        output = self._value(self._state.get("Output", self._given))
        return self._leave(self._state, output, result=output)

    def _wait(self):
        seconds = self._value(self._state.get("Seconds"))
        if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 <= seconds <= FOREVER:
            raise self._wrong(f"Seconds must be a whole number from 0 to {FOREVER}; got {seconds!r}")
        self._walk._cancel.sleep(seconds)
        return self._leave(self._state, self._value(self._state.get("Output", self._given)))

    def _choice(self):
        for choice in self._state["Choices"]:
            chosen = self._value(choice["Condition"])
            if not isinstance(chosen, bool):
                raise self._wrong(f"Condition must be true or false; got {chosen!r}")
            if chosen:
                return self._leave(choice, self._value(choice.get("Output", self._given)))
        if "Default" not in self._state:
            raise Failure("States.NoChoiceMatched", f"no rule of {self._name} matches, and it has no Default")
        output, variables, _ = self._leave(self._state, self._value(self._state.get("Output", self._given)))
        return output, variables, self._state["Default"]

    def _succeed(self):
        return self._leave({**self._state, "End": True}, self._value(self._state.get("Output", self._given)))

    def _fail(self):
        error, cause = (self._value(self._state.get(name, "")) for name in ("Error", "Cause"))
        if not isinstance(error, str) or not isinstance(cause, str):
            raise self._wrong(f"Error and Cause must be texts; got {error!r} and {cause!r}")
        raise Failure(error, cause)

    # States that can catch.

    def _task(self):
        return self._with_retry(self._attempt)

    def _map(self):
        return self._with_retry(self._iterate)

    def _parallel(self):
        return self._with_retry(self._branch)

    def _with_retry(self, attempt):
        used = {}
        while True:
            try:
                result = attempt()
                output = self._value(self._state.get("Output", result), result=result)
                return self._leave(self._state, output, result=result)
            except Failure as failure:
                self._walk._cancel.check()
                pause = self._pause_before_retry(failure, used)
                if pause is None:
                    return self._catch(failure)
                self._retries += 1
                self._walk._cancel.sleep(pause)
                self._walk._forget_inner()

    def _pause_before_retry(self, failure, used):
        """Returns the seconds before the next attempt. A retrier counts within one visit of its state."""
        for number, retrier in enumerate(self._state.get("Retry", [])):
            if not matches(retrier["ErrorEquals"], failure):
                continue
            count = used.get(number, 0)
            if count >= retrier.get("MaxAttempts", 3):
                return None
            used[number] = count + 1
            pause = retrier.get("IntervalSeconds", 1) * retrier.get("BackoffRate", 2.0) ** count
            pause = min(pause, retrier.get("MaxDelaySeconds", math.inf))
            return random.uniform(0, pause) if retrier.get("JitterStrategy") == "FULL" else pause
        return None

    def _catch(self, failure):
        for catcher in self._state.get("Catch", []):
            if not matches(catcher["ErrorEquals"], failure):
                continue
            error = {"Error": failure.error, "Cause": failure.cause}
            return self._leave(catcher, self._value(catcher.get("Output", error), error=error), error=error)
        raise failure

    def _attempt(self):
        """Runs a task once. It has no effect on the execution any more when it answers too late."""
        if not self._state["Resource"].endswith(WAITS):
            return self._run_task()
        # A token belongs to one attempt. A retry and a redrive give another one.
        self._callback = Callback(self._walk.machine(), self._walk.goes_on)
        try:
            return self._run_task(self._callback)
        finally:
            self._callback.close()

    def _run_task(self, callback=None):
        arguments = self._arguments()
        seconds = self._timeout()
        details = {"resource": self._state["Resource"]}
        self._walk._event("TaskScheduled", taskScheduledEventDetails=details)
        self._walk._event("TaskStarted", taskStartedEventDetails=details)

        def begin(answer):
            if callback:
                callback.begin(answer)
            scope, call = contextvars.copy_context(), self._call_and_wait if callback else self._call
            threading.Thread(target=scope.run, args=(call, arguments, callback or answer), daemon=True).start()

        try:
            result = self._walk._cancel.result(begin, seconds)
        except queue.Empty:
            # An outcome that was accepted in the last moment counts.
            if not callback or callback.close():
                self._walk._event("TaskTimedOut", taskTimedOutEventDetails=details)
                raise Failure("States.Timeout", "") from None
            result = callback.outcome
        try:
            if isinstance(result, Failure):
                raise result
            # The answer of a task is a payload, whatever is kept of it.
            limited(result, "the answer of the task", TooLarge)
        except Failure as failure:
            named = {**details, "error": failure.error, "cause": failure.cause}
            self._walk._event("TaskFailed", taskFailedEventDetails=named)
            raise
        self._walk._event("TaskSucceeded", taskSucceededEventDetails={**details, "output": json.dumps(result)})
        return result

    def _call(self, arguments, answer):
        answer.put(self._called(self._state["Resource"], arguments))

    def _call_and_wait(self, arguments, callback):
        """Calls, and leaves the result to the callback. A failure ends the task at once. An answer only shows that it began."""
        resource = self._state["Resource"]
        answer = self._called(resource.removesuffix(WAITS), arguments)
        try:
            if isinstance(answer, Failure):
                raise answer
            if callback.is_open():
                details = {"resource": resource, "output": json.dumps(answer)}
                self._walk._event("TaskSubmitted", taskSubmittedEventDetails=details)
        except Failure as failure:
            callback.settle(failure)

    def _called(self, resource, arguments):
        """Returns the answer, or a Failure."""
        try:
            return sfn._invoke_resource(resource, arguments)
        except Failure as failure:
            if "startExecution.sync" in resource:
                return Failure("States.TaskFailed", json.dumps({"Error": failure.error, "Cause": failure.cause}))
            return failure
        except Exception as bug:
            return Failure("States.TaskFailed", repr(bug))

    def _timeout(self):
        seconds = self._value(self._state.get("TimeoutSeconds", FOREVER))
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 1:
            raise self._wrong(f"TimeoutSeconds must be a whole number that is at least 1; got {seconds!r}")
        return seconds

    def _iterate(self):
        state, processor = self._state, self._state["ItemProcessor"]
        distributed = processor.get("ProcessorConfig", {}).get("Mode") == "DISTRIBUTED"
        items = self._value(state.get("Items", self._given))
        if not isinstance(items, list):
            raise self._wrong(f"Items must be an array; got {items!r}")
        self._walk._event("MapStateStarted", mapStateStartedEventDetails={"length": len(items)})

        def begin(index, cancel):
            item = {"Index": index, "Value": items[index]}
            chosen = self._value(state["ItemSelector"], item=item) if "ItemSelector" in state else items[index]
            limited(chosen, "an item")
            arn = self._walk._arn
            if distributed:
                # The same after a redrive.
                child = uuid.uuid5(uuid.NAMESPACE_URL, f"{arn}/{self._name}/{index}")
                arn = f"{arn.rsplit(':', 1)[0]}/{self._name}:{child}"
            walk = Walk(
                self._walk._run, processor, cancel, f"{self._walk._place}/{self._name}/{index}", arn, item,
                self._walk._loud and not distributed,
            )
            # Variables of the outside can be read inside, but not in a child execution.
            return walk.run(chosen, {} if distributed else copy.deepcopy(self._variables))

        tolerated = 0
        if distributed:
            share = state.get("ToleratedFailurePercentage", 0) / 100 * len(items)
            tolerated = max(share, state.get("ToleratedFailureCount", 0))
        results = self._at_once(len(items), begin, state.get("MaxConcurrency", 0), "MapIteration", tolerated)
        self._walk._event("MapStateSucceeded")
        return limited(results, "the result of the map")

    def _branch(self):
        branches, given = self._state["Branches"], self._arguments()

        def begin(index, cancel):
            place = f"{self._walk._place}/{self._name}/{index}"
            walk = Walk(
                self._walk._run, branches[index], cancel, place, self._walk._arn, self._walk._item, self._walk._loud,
            )
            return walk.run(given, copy.deepcopy(self._variables))

        self._walk._event("ParallelStateStarted")
        results = self._at_once(len(branches), begin, 0, None, 0)
        self._walk._event("ParallelStateSucceeded")
        return limited(results, "the result of the branches")

    def _at_once(self, count, begin, most, kind, tolerated):
        """Runs iterations or branches. The first failure that is not tolerated stops the others."""
        cancel, failures, results = Cancel(self._walk._cancel), [], [None] * count

        def one(index):
            details = {f"{(kind or '').lower()}Details": {"name": self._name, "index": index}}
            try:
                cancel.check()
                if kind:
                    self._walk._event(f"{kind}Started", **details)
                results[index] = begin(index, cancel)
                if kind:
                    self._walk._event(f"{kind}Succeeded", **details)
            except Stopped:
                pass
            except Failure as failure:
                failures.append(failure)
                results[index] = {"Error": failure.error, "Cause": failure.cause}
                if len(failures) > tolerated:
                    cancel.cancel()

        if count:
            with ThreadPoolExecutor(min(count, most or count, 64)) as pool:
                list(pool.map(lambda index: contextvars.copy_context().run(one, index), range(count)))
        self._walk._cancel.check()
        if len(failures) <= tolerated:
            return results
        if tolerated:
            raise Failure("States.ExceedToleratedFailureThreshold", f"{len(failures)} of {count} items failed")
        raise failures[0]

    # Data.

    def _leave(self, where, output, **results):
        """Evaluates Assign, and returns output, variables and the next state."""
        variables = self._variables
        if "Assign" in where:
            assigned = self._value(where["Assign"], **results)
            variables = {**variables, **limited(assigned, "what the state assigns")}
        return limited(output, "the output of the state"), variables, None if where.get("End") else where.get("Next")

    def _arguments(self):
        return limited(self._value(self._state.get("Arguments", self._given)), "the input of the state")

    def _value(self, template, result=None, error=None, item=None):
        context = {**self._context(item), "variables": self._variables}
        return sfn._apply_jsonata_template(template, self._given, context, result, error)

    def _wrong(self, text):
        return Failure("States.QueryEvaluationError", f"{self._name}: {text}")

    def _context(self, item=None):
        run, record = self._walk._run, self._walk._run.record
        context = {
            "Execution": {
                "Id": self._walk._arn, "Input": json.loads(record["input"]), "Name": record["name"],
                "RoleArn": run.machine["roleArn"], "StartTime": record["startDate"], "RedriveCount": record.get("redrives", 0),
            },
            "State": {"EnteredTime": self._entered, "Name": self._name, "RetryCount": self._retries},
            "StateMachine": {"Id": run.machine["stateMachineArn"], "Name": run.machine["name"]},
        }
        if self._callback:
            context["Task"] = {"Token": self._callback.token}
        item = item or self._walk._item
        if item:
            context["Map"] = {"Item": item}
        return context
