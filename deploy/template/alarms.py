"""Which alarms begin? python deploy/template/alarms.py TEMPLATE [--write]

Feeds the alarms of the expanded template with log lines as the functions write them, and with values of AWS's own metrics.
Each must begin the alarms that it is expected to begin, and no others, and each alarm must begin at least once. Fails if the
table of alarms in docs/operations.md is not that of the template; with --write it becomes so.
"""

import json
import pathlib
import re
import sys

from dashboard import widgets
from expansion import Expansion

NAMESPACE = "LambdaLock/stack"


def line(level, **fields):
    return json.dumps({"timestamp": "2026-07-01T12:56:02.629070Z", "level": level, "message": "…", **fields})


TASK, CLEANER, WAKER = "LockTaskLogs", "LockCleanerLogs", "LockWakerLogs"
# What the functions log, for how many periods of five minutes, and which alarms begin.
LOGGED = [
    (TASK, line("INFO", error_type="LockHeld"), 3, []),
    (TASK, line("WARN", error_type="InvalidRequest"), 3, []),
    # Also of a function that runs once an hour.
    (TASK, line("WARN", error_type="LockLost"), 1, ["LocksLostOrUnknown"]),
    (TASK, line("WARN", error_type="LockUnknown"), 1, ["LocksLostOrUnknown"]),
    (TASK, line("ERROR", error_type="InvalidRecord"), 1, ["RepairNeeded"]),
    (TASK, line("ERROR", error_type="LockTableError"), 1, ["RepairNeeded"]),
    (CLEANER, line("ERROR", error_type="LockTableError"), 1, ["RepairNeeded"]),
    (WAKER, line("ERROR", error_type="InvalidRecord"), 1, ["RepairNeeded"]),
    # Nobody was woken. Who sleeps looks by itself.
    (WAKER, line("WARN", ticket=1, failure="…"), 3, []),
    (CLEANER, line("INFO", execution="arn", released=1, failed=0), 3, []),
    (TASK, line("WARN", offset_millis=-4000), 1, ["ClocksApart"]),
    (CLEANER, line("WARN", offset_millis=4000), 1, ["ClocksApart"]),
]
TABLE, QUEUE, FUNCTION, INDEX = "TableName", "QueueName", "FunctionName", "GlobalSecondaryIndexName"
# A metric of AWS, its dimensions, a value, for how many periods, and which alarms begin.
MEASURED = [
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", (QUEUE, "CleanupDeadLetters"), 1, 1, ["CleanupsFailed"]),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", (QUEUE, "OrderDeadLetters"), 1, 1, ["OrdersFailed"]),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", (QUEUE, "JobDeadLetters"), 1, 1, ["JobFailed"]),
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible", (QUEUE, "OrderMessages"), 100, 3, []),
    ("AWS/Lambda", "Errors", (FUNCTION, "LockCleaner"), 1, 2, []),
    ("AWS/Lambda", "Errors", (FUNCTION, "LockCleaner"), 1, 3, ["LockCleanerFails"]),
    # Each refusal is one.
    ("AWS/Lambda", "Errors", (FUNCTION, "LockTask"), 1000, 3, []),
    ("AWS/Lambda", "Throttles", (FUNCTION, "LockTask"), 1, 3, ["LockTaskThrottled"]),
    ("AWS/Lambda", "Duration", (FUNCTION, "LockTask"), 20_000, 3, []),
    ("AWS/Lambda", "Duration", (FUNCTION, "LockTask"), 29_000, 3, ["LockTaskSlow"]),
    ("AWS/DynamoDB", "WriteThrottleEvents", (TABLE, "LockTable"), 1, 2, []),
    ("AWS/DynamoDB", "WriteThrottleEvents", (TABLE, "LockTable"), 1, 3, ["LockTableThrottled"]),
    # Those who wait read.
    ("AWS/DynamoDB", "ReadThrottleEvents", (TABLE, "LockTable"), 1, 3, ["LockTableThrottled"]),
    # An index that is throttled throttles the writes of its table. lock-cleaner reads it.
    ("AWS/DynamoDB", "WriteThrottleEvents", (TABLE, "LockTable", INDEX, "byWorkflow"), 1, 3, ["LockTableThrottled"]),
    ("AWS/DynamoDB", "ReadThrottleEvents", (TABLE, "LockTable", INDEX, "byWorkflow"), 1, 3, ["LockTableThrottled"]),
    ("AWS/DynamoDB", "ConditionalCheckFailedRequests", (TABLE, "LockTable"), 3000, 3, []),
    ("AWS/DynamoDB", "ConditionalCheckFailedRequests", (TABLE, "LockTable"), 3001, 3, ["LocksContended"]),
]
# How the values of a period become one. All others are counts.
STATISTICS = {"ApproximateNumberOfMessagesVisible": "Maximum", "Duration": "p99"}
# How titles of widgets begin, and the function that they show.
ABOUT = {"lock-task: ": "LockTask", "lock-cleaner: ": "LockCleaner", "Locks: ": "LockTask"}
PAGE = pathlib.Path("docs/operations.md")
HEAD = "| alarm | begins when | what it means, and what to do |\n|---|---|---|\n"
TABLE_OF_ALARMS = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")
TERM = re.compile(r'\(?\$\.(\w+) = ("[^"]*"|\*)\)?')


def matches(pattern, text):
    """Whether a metric filter counts this line. Its pattern has comparisons of fields, of which one must hold."""
    fields = json.loads(text)
    inner = pattern.removeprefix("{ ").removesuffix(" }")
    for term in inner.split(" || "):
        found = TERM.fullmatch(term)
        assert found, f"{pattern} cannot be read here"
        name, value = found.groups()
        if name in fields and (value == "*" or str(fields[name]) == value.strip('"')):
            return True
    return False


class Alarms:
    def __init__(self, expansion):
        self.expansion = expansion
        self.filters = expansion.of_type("AWS::Logs::MetricFilter").values()
        self.alarms = expansion.of_type("AWS::CloudWatch::Alarm")

    def text(self, value):
        # The name of a queue is its attribute, and that of a function or a log group its reference.
        attribute = value.get("Fn::GetAtt") if isinstance(value, dict) else None
        return attribute[0] if attribute else str(self.expansion.resolve(value))

    def measured(self, name, alarm):
        """The metrics of which one can begin the alarm by itself: its own, or those that its expression adds up."""
        of_expression = {one["Id"]: one for one in alarm.get("Metrics", [])}
        total = of_expression.pop("total", None)
        if total:
            # A metric without data in a period would leave the others without a sum.
            assert total["Expression"] == " + ".join(f"FILL({one}, 0)" for one in of_expression), f"{name}: {total}"
            assert total["ReturnData"] and not any(one["ReturnData"] for one in of_expression.values()), name
        stats = [one["MetricStat"] for one in of_expression.values()]
        for one in [{**one["Metric"], "Period": one["Period"], "Statistic": one["Stat"]} for one in stats] or [alarm]:
            statistic = one.get("Statistic") or one["ExtendedStatistic"]
            assert one["Period"] == 300 and statistic == STATISTICS.get(one["MetricName"], "Sum"), f"{name}: {one}"
            of = [part for of in one.get("Dimensions", []) for part in (of["Name"], self.text(of["Value"]))]
            yield self.text(one["Namespace"]), one["MetricName"], tuple(of), statistic

    def beginning(self, namespace, metric, dimensions, value, periods):
        """The alarms that this value begins, after so many periods."""
        for name, alarm in self.alarms.items():
            is_it = (namespace, metric, dimensions) in [one[:3] for one in self.measured(name, alarm)]
            assert alarm["ComparisonOperator"] == "GreaterThanThreshold", name
            # So many periods in a row. No data is no reason.
            assert alarm["EvaluationPeriods"] == alarm["DatapointsToAlarm"], name
            assert alarm["TreatMissingData"] == "notBreaching" and alarm.get("ActionsEnabled", True), name
            threshold = float(self.expansion.resolve(alarm["Threshold"]))
            if is_it and value > threshold and periods >= alarm["DatapointsToAlarm"]:
                yield name

    def logged(self, group, text, periods):
        for one in self.filters:
            if self.text(one["LogGroupName"]) == group and matches(one["FilterPattern"], text):
                (transformation,) = one["MetricTransformations"]
                namespace = self.text(transformation["MetricNamespace"])
                assert transformation["MetricValue"] == "1", transformation
                yield from self.beginning(namespace, transformation["MetricName"], (), 1, periods)


def table(path):
    """The table of the page."""
    alarms = Alarms(Expansion(path))
    rows = []
    for name, alarm in alarms.alarms.items():
        shown = {}
        for namespace, metric, dimensions, statistic in alarms.measured(name, alarm):
            of = "".join(f" of `{one}`" for one in reversed(dimensions[1::2]))
            shown.setdefault((statistic.lower(), namespace.replace(NAMESPACE, "LambdaLock/STACK"), of), []).append(f"`{metric}`")
        total = ", and ".join(f"{how} of `{where}` {' and '.join(names)}{of}" for (how, where, of), names in shown.items())
        threshold = alarm["Threshold"]
        # A parameter may change it.
        above = f"`{threshold['Ref']}`" if isinstance(threshold, dict) else f"{threshold:,}"
        periods = alarm["DatapointsToAlarm"]
        when = f"{total}{', together' if len(shown) > 1 else ''} above {above}, {'once' if periods == 1 else f'{periods} times in a row'}"
        rows.append(f"| `{name}` | {when} | {alarm['AlarmDescription']} |\n")
    return HEAD + "".join(rows)


def page_findings(path, how):
    page = PAGE.read_text()
    found = TABLE_OF_ALARMS.search(page)
    if not found:
        yield f"{PAGE} has no table of alarms with this head:\n{HEAD}"
    elif how == "--write":
        PAGE.write_text(page[: found.start()] + table(path) + page[found.end() :])
    elif found[0] != table(path):
        yield f"{PAGE} does not have the alarms of {path}: run python deploy/template/alarms.py {path} --write"


def findings(path):
    alarms, seen = Alarms(Expansion(path, WakeByStream="true")), set()
    for group, text, periods, expected in LOGGED:
        begun = list(alarms.logged(group, text, periods))
        seen.update(begun)
        if begun != expected:
            yield f"{group}, {text}, {periods} periods: {begun}, expected {expected}"
    for namespace, metric, dimension, value, periods, expected in MEASURED:
        begun = list(alarms.beginning(namespace, metric, dimension, value, periods))
        seen.update(begun)
        if begun != expected:
            yield f"{metric} of {dimension[1]} is {value} in {periods} periods: {begun}, expected {expected}"
    timeout = alarms.expansion.of_type("AWS::Lambda::Function")["LockTask"]["Timeout"]
    if alarms.alarms["LockTaskSlow"]["Threshold"] != 900 * timeout:
        yield f"LockTaskSlow is not nine tenths of lock-task's timeout of {timeout} s"
    for name in sorted(set(alarms.alarms) - seen):
        yield f"{name} never begins"
    topic = "arn:aws:sns:eu-central-1:123456789012:operators"
    told = Expansion(path, AlarmTopicArn=topic)
    for name, alarm in told.of_type("AWS::CloudWatch::Alarm").items():
        if [told.resolve(alarm[when]) for when in ("AlarmActions", "OKActions")] != [[topic], [topic]]:
            yield f"{name} tells nobody"
    for parameters, left in (({"Alarms": "false"}, set()), ({"Samples": "false"}, set(alarms.alarms) - {"OrdersFailed", "JobFailed"})):
        if set(Expansion(path, **parameters).of_type("AWS::CloudWatch::Alarm")) != left:
            yield f"{parameters}: not the alarms {sorted(left)}"


def dashboard_findings(path):
    """The dashboard shows each metric and each alarm of the lock, and nothing that is not there."""
    alone = Expansion(path, Samples="false")
    body = widgets(alone)
    shows = [one["properties"] for one in body]
    shown = [name for one in shows for name in one.get("alarms", [])]
    if sorted(shown) != sorted(alone.of_type("AWS::CloudWatch::Alarm")):
        yield f"the dashboard shows the alarms {shown}"
    measured = {(row[0].replace("StackName", "stack"), row[1]) for one in shows for row in one.get("metrics", [])}
    of_alarms = Alarms(alone)
    for name, alarm in of_alarms.alarms.items():
        for namespace, metric, *_ in of_alarms.measured(name, alarm):
            if (namespace, metric) not in measured:
                yield f"the dashboard does not show {metric} of {name}"
    names = {row[3] for one in shows for row in one.get("metrics", []) if len(row) > 3}
    for name in sorted(names - set(alone.resources) - {"Table"}):
        yield f"the dashboard shows {name}, which is not there"
    for one in shows:
        functions = {row[3] for row in one.get("metrics", []) if row[2:3] == ["FunctionName"]}
        about = next((name for title, name in ABOUT.items() if one["title"].startswith(title)), None)
        if functions - {about}:
            yield f"the widget {one['title']} shows {', '.join(sorted(functions))}"
        # The dashboard's name has the Region of its stack, and so have its metrics.
        if "metrics" in one and one["region"] != "Region":
            yield f"the widget {one['title']} is of {one['region']}"
    places = sorted((one["y"], one["x"], one["width"]) for one in body)
    for (y, x, width), (next_y, next_x, _) in zip(places, places[1:]):
        if y == next_y and x + width > next_x or x + width > 24:
            yield f"two widgets overlap at {next_x}, {next_y}"


def main(path, how=None):
    found = [*findings(path), *dashboard_findings(path), *page_findings(path, how)]
    for finding in found:
        print(finding, file=sys.stderr)
    if found:
        sys.exit(1)
    print(", ".join(sorted(Alarms(Expansion(path)).alarms)))


if __name__ == "__main__":
    main(*sys.argv[1:])
