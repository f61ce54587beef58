// One line of JSON per call, as the conformance scenarios send it.

import { createInterface } from 'node:readline';

// Answers each line of standard input until the input ends.
export async function serve(host) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { ask, ...question } = JSON.parse(line);
    let told;
    try {
      told = { ok: (await host[ask](question)) ?? null };
    } catch (error) {
      const { kind, message } = error;
      if (!kind) throw error;
      told = { error: { kind: kind.tag, message, held: kind.tag === 'held' ? kind.val : null } };
    }
    process.stdout.write(JSON.stringify(told, plain) + '\n');
  }
}

// BigInt as a number, and bytes as a list of numbers.
function plain(_, value) {
  if (typeof value === 'bigint') return Number(value);
  return value instanceof Uint8Array ? [...value] : value;
}

export const big = (number) => number == null ? undefined : BigInt(number);

export const grantToJson = (number, lock, remaining, data) => ({
  lock: number,
  owner: lock.owner(),
  fencingToken: lock.fencingToken(),
  leaseEndsAt: lock.leaseEndsAt(),
  remaining,
  data,
});

export const savedToJson = (saved) => ({ ...saved, key: saved.key.key });

export const savedFromJson = (saved) => ({
  ...saved,
  key: { key: saved.key },
  fencingToken: big(saved.fencingToken),
  lease: big(saved.lease),
  leaseEndsAt: big(saved.leaseEndsAt),
  workflow: saved.workflow ?? undefined,
});

export const observationFromJson = (observation) => observation == null
  ? undefined
  : { version: observation.version, lease: big(observation.lease), unchangedFor: big(observation.unchangedFor) };

export const dataChange = (data) => data == null ? { tag: 'keep' } : { tag: 'set', val: new Uint8Array(data) };

// A fence of `Locks`, with the names of the WIT package.
export const fenceToJson = ({ ConditionCheck: check }) => ({
  tableName: check.TableName,
  key: check.Key,
  conditionExpression: check.ConditionExpression,
  expressionAttributeNames: check.ExpressionAttributeNames ?? {},
  expressionAttributeValues: check.ExpressionAttributeValues ?? {},
});
