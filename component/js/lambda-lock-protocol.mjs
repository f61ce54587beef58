// The lock from JavaScript on a DynamoDB client of your own, through the component `protocol`: the component decides,
// and the AWS SDK sends.
//
//   const locks = new Locks(new DynamoDBClient(CONFIG), { table: 'locks' });
//   const owner = `statement/${randomUUID()}`; // names this one holder
//   const lock = await locks.acquire('customer-7', { owner, lease: 20_000n, wait: 5_000n });
//   …
//   await locks.renew(lock);
//   await locks.release(lock);
//
// Times are in milliseconds, as BigInt. A failure that the lock reports is thrown as the record `error`, with a
// `kind.tag` such as 'held' or 'lost'. Its `cause` is the last error of the AWS SDK: why the outcome is unknown. What the
// SDK never sent, because it has no Region or no credentials for example, is thrown as it is.

import { setTimeout as sleep } from 'node:timers/promises';
import { randomBytes } from 'node:crypto';
import {
  ConditionalCheckFailedException,
  DynamoDBServiceException,
  GetItemCommand,
  UpdateItemCommand,
} from '@aws-sdk/client-dynamodb';
import { decisions } from './transpiled/protocol.js';

const COMMANDS = { 'get-item': GetItemCommand, 'update-item': UpdateItemCommand };
const KEEP = { tag: 'keep' };

// One attempt per request, because the decisions repeat requests themselves.
export const CONFIG = { maxAttempts: 1 };

// Locks in one table.
export class Locks {
  constructor(dynamodb, settings) {
    this.dynamodb = dynamodb;
    this.table = thrown(() => decisions.Table.open(settings));
  }

  // Tries once, or waits for the time in `wait`. Returns `{ lock, data }`, or `{ held }` with the holder.
  async tryAcquire(key, wanted) {
    wanted = { wait: 0n, data: KEEP, reclaim: { tag: 'nobody' }, ...wanted, key: lockKey(key) };
    const { tag, val } = await this.#decided(() => this.table.acquire(wanted));
    if (tag === 'held') return { held: val };
    if (val.renewFirst) await this.renew(val.lock);
    return val;
  }

  async acquire(key, wanted) {
    const { lock, held } = await this.tryAcquire(key, wanted);
    if (held) throw { kind: { tag: 'held', val: held }, message: `the lock ${key} is held by ${held.holder}` };
    return lock;
  }

  // Reads a saved lock. Its remaining lease counts as zero until a renewal succeeds. Release it, or `resume` it at
  // once.
  read(saved) {
    return thrown(() => this.table.resume(saved, clocks()));
  }

  async resume(saved, options) {
    const lock = this.read(saved);
    await this.renew(lock, options);
    return lock;
  }

  async renew(lock, options) {
    await this.#decided(() => lock.renew({ data: KEEP, ...options }));
  }

  // The condition that this lock is still held, as an item of a `TransactWriteItemsCommand`.
  fence(lock) {
    return { ConditionCheck: parameters(thrown(() => lock.conditionCheck())) };
  }

  async release(lock, options) {
    const all = { data: KEEP, orLaterGrantOfOwner: false, ...options };
    return (await this.#decided(() => lock.release(all))).val;
  }

  async releaseWorkflow(key, workflow) {
    return (await this.#decided(() => this.table.releaseWorkflow(lockKey(key), workflow))).val;
  }

  async peek(key) {
    return (await this.#decided(() => this.table.peek(lockKey(key)))).val;
  }

  // The loop of every decision: step, send or wait, until the verdict.
  async #decided(begin) {
    const decision = thrown(begin);
    let cause;
    let unknown = false;
    for (;;) {
      const { tag, val } = decision.step(clocks(), randomBytes(32));
      if (tag === 'done') return thrown(() => decision.verdict(), cause);
      if (tag === 'wait') {
        await sleep(Number(val));
        continue;
      }
      const { answer, error, sent } = await this.#send(val);
      // An earlier request may have been applied, and only the decision knows what to say then.
      if (error && !sent && !unknown) throw error;
      cause = error ?? cause;
      unknown ||= answer.tag === 'unknown';
      decision.answered(clocks(), answer);
    }
  }

  // Sends one request. Returns what is known afterwards, the error if there was one, and whether the request was handed to
  // the connection.
  async #send({ request, patience }) {
    const abortSignal = AbortSignal.timeout(Number(patience));
    const command = new COMMANDS[request.operation](parameters(request));
    let sent = false;
    const note = (next) => (args) => {
      sent = true;
      return next(args);
    };
    // The last step before the connection.
    command.middlewareStack.add(note, { step: 'deserialize', priority: 'low', name: 'lockSent' });
    try {
      const answer = await this.dynamodb.send(command, { abortSignal });
      if (request.operation === 'get-item') return { answer: { tag: 'found', val: attributes(answer.Item) }, sent };
      return { answer: { tag: 'applied', val: attributes(answer.Attributes) ?? [] }, sent };
    } catch (error) {
      return { answer: refusal(error), error, sent };
    }
  }
}

// The record `error` of a failure that the lock reports, with its cause. Any other failure is thrown unchanged.
function thrown(call, cause) {
  try {
    return call();
  } catch (error) {
    // Some versions of jco throw the record itself, others an error that has it.
    const failure = error.payload ?? error;
    throw failure.kind ? { ...failure, cause } : error;
  }
}

// Reads both clocks, the monotonic clock first. Both are rounded down.
export function clocks() {
  return { monotonic: process.hrtime.bigint() / 1_000_000n, wall: BigInt(Date.now()), wallIsRight: true };
}

// A key as a string, or as a pair of partition key and sort key.
function lockKey(key) {
  return Array.isArray(key) ? { key: key[0], sortKey: key[1] } : { key };
}

// A request or a condition check in the form of the AWS SDK.
function parameters(request) {
  const names = request.expressionAttributeNames.map(({ placeholder, name }) => [placeholder, name]);
  const values = request.expressionAttributeValues.map(({ placeholder, value }) => [placeholder, toSdk(value)]);
  return {
    TableName: request.tableName,
    Key: Object.fromEntries(request.key.map(({ name, value }) => [name, toSdk(value)])),
    UpdateExpression: request.updateExpression,
    ConditionExpression: request.conditionExpression,
    ExpressionAttributeNames: names.length ? Object.fromEntries(names) : undefined,
    ExpressionAttributeValues: values.length ? Object.fromEntries(values) : undefined,
    ReturnValues: request.returnValues,
    ReturnValuesOnConditionCheckFailure: request.returnValuesOnConditionCheckFailure,
    ConsistentRead: request.consistentRead,
  };
}

// The meaning of a failure. A response with a status of 400 to 499 is a refusal. For all others the outcome is unknown.
function refusal(error) {
  const status = error.$metadata?.httpStatusCode ?? 0;
  if (!(error instanceof DynamoDBServiceException) || status < 400 || status >= 500) return { tag: 'unknown' };
  if (error instanceof ConditionalCheckFailedException) return { tag: 'condition-failed', val: attributes(error.Item) };
  return { tag: 'failed', val: { code: error.name, message: error.message } };
}

function toSdk({ tag, val }) {
  return { [tag.toUpperCase()]: val };
}

// An item of the SDK as a list of attributes, or undefined without an item.
function attributes(item) {
  return item && Object.entries(item).map(([name, value]) => ({ name, value: fromSdk(value) }));
}

function fromSdk(value) {
  const [[kind, val]] = Object.entries(value);
  // For other types than these, a lock needs only the name of the type.
  return ['S', 'N', 'B', 'NS'].includes(kind) ? { tag: kind.toLowerCase(), val } : { tag: 'other', val: kind };
}
