// The host of the component `protocol` on the AWS SDK, for the conformance scenarios.

import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { CONFIG, Locks, clocks } from './lambda-lock-protocol.mjs';
import {
  big, dataChange, fenceToJson, grantToJson, observationFromJson, serve, savedFromJson, savedToJson,
} from './lines.mjs';

let locks, owner, granted = [];

function grant(lock, data) {
  granted.push(lock);
  return grantToJson(granted.length - 1, lock, lock.remaining(clocks()), data);
}

function wanted({ key, remaining, lease, reclaimOwn, ...options }) {
  return [key, {
    lease: big(lease) ?? locks.table.leaseCovering(big(remaining), 1_000n),
    owner: options.owner ?? owner,
    workflow: options.workflow ?? undefined,
    data: dataChange(options.data),
    observation: observationFromJson(options.observation),
    reclaim: { tag: reclaimOwn ? 'same-owner' : 'nobody' },
    queueing: options.queueing ?? undefined,
  }];
}

await serve({
  open(settings) {
    [owner, granted] = [settings.owner, []];
    const credentials = { accessKeyId: settings.accessKeyId, secretAccessKey: 'secret' };
    const dynamodb = new DynamoDBClient({ ...CONFIG, endpoint: settings.endpoint, region: 'local', credentials });
    locks = new Locks(dynamodb, { table: settings.table, requestTimeout: big(settings.requestTimeout) });
  },
  async acquire(ask) {
    const [key, options] = wanted(ask);
    const { lock, data, held } = await locks.tryAcquire(key, { ...options, wait: big(ask.remaining ?? 0) });
    if (held) throw { kind: { tag: 'held', val: held }, message: `held by ${held.holder}` };
    return grant(lock, data);
  },
  async tryAcquire(ask) {
    const { lock, data, held } = await locks.tryAcquire(...wanted(ask));
    return held ? { held } : { granted: grant(lock, data) };
  },
  async reclaim({ saved, lease }) {
    const reclaim = { tag: 'only', val: savedFromJson(saved) };
    return grant(await locks.acquire('', { owner: '', lease: big(lease), reclaim }));
  },
  resume: async ({ saved }) => grant(await locks.resume(savedFromJson(saved))),
  renew: ({ lock, lease, data }) => locks.renew(granted[lock], { lease: big(lease), data: dataChange(data) }),
  remaining: ({ lock }) => granted[lock].remaining(clocks()),
  toSaved: ({ lock }) => savedToJson(granted[lock].toSaved()),
  conditionCheck: ({ lock }) => fenceToJson(locks.fence(granted[lock])),
  release: ({ lock }) => locks.release(granted[lock]),
  releaseSaved: ({ saved, orLaterGrantOfOwner }) =>
    locks.release(locks.read(savedFromJson(saved)), { orLaterGrantOfOwner }),
  releaseWorkflow: ({ key, workflow }) => locks.releaseWorkflow(key, workflow),
  peek: ({ key }) => locks.peek(key),
  async pairs({ key, count }) {
    const started = process.hrtime.bigint();
    for (let pair = 0; pair < count; pair++) {
      const lock = await locks.acquire(key, { owner, lease: 60_000n });
      await locks.release(lock);
      lock[Symbol.dispose]?.();
    }
    return Number(process.hrtime.bigint() - started) / count;
  },
});
