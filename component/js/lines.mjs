// One line of JSON per call, as the conformance scenarios send it. Both JavaScript hosts use this file.

import { createInterface } from 'node:readline';

// Answers each line of standard input until the input ends.
export async function serve(host) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { ask, ...question } = JSON.parse(line);
    let told;
    try {
      told = { ok: (await host[ask](question)) ?? null };
    } catch (error) {
      // The error of a call for several locks has the record `error` in it.
      const { kind, message } = error.error ?? error;
      if (!kind) throw error;
      const blocked = (error.blocked ?? []).map(({ key, held }) => ({ key: key.key, held }));
      told = { error: { kind: kind.tag, message, held: kind.tag === 'held' ? kind.val : null, blocked } };
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

export const blockedFromJson = ({ key, held }) => ({
  key: { key },
  held: {
    holder: held.holder,
    leaseEndsAt: big(held.leaseEndsAt),
    retryAfter: big(held.retryAfter),
    waiting: big(held.waiting),
    freezeReason: held.freezeReason ?? undefined,
    observation: observationFromJson(held.observation),
  },
});

export const dataChange = (data) => data == null ? { tag: 'keep' } : { tag: 'set', val: new Uint8Array(data) };

// Attribute values in DynamoDB's JSON. The condition of a lock has no bytes.
export const conditionCheckToJson = (check) => {
  const value = ({ tag, val }) => ({ [tag.toUpperCase()]: val });
  const pairs = (list, pair) => Object.fromEntries(list.map(pair));
  return {
    tableName: check.tableName,
    key: pairs(check.key, (each) => [each.name, value(each.value)]),
    conditionExpression: check.conditionExpression,
    expressionAttributeNames: pairs(check.expressionAttributeNames, (each) => [each.placeholder, each.name]),
    expressionAttributeValues: pairs(check.expressionAttributeValues, (each) => [each.placeholder, value(each.value)]),
  };
};
