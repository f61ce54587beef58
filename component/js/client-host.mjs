// The host of the component `client` for the conformance scenarios. Each call blocks the only thread of this process
// until it ends.

import { locks as component } from './transpiled/client.js';
import {
  big, blockedFromJson, conditionCheckToJson, dataChange, grantToJson, observationFromJson, serve, savedFromJson,
  savedToJson,
} from './lines.mjs';

const RELEASING = { data: { tag: 'keep' }, deleteRow: false, orLaterGrantOfOwner: false };
let client, granted = [], sets = [];

// A failure that the lock reports is thrown as an error that contains the record `error`.
function thrown(call) {
  try {
    return call();
  } catch (error) {
    throw error.payload ?? error;
  }
}

function grant(lock) {
  granted.push(lock);
  return grantToJson(granted.length - 1, lock, lock.remaining(), lock.data());
}

function acquiring({ key, remaining, lease, owner, workflow, data, observation, reclaimOwn, queueing }) {
  return [{ key }, {
    budget: remaining == null ? undefined : { remaining: big(remaining), reserve: 0n },
    lease: big(lease),
    owner: owner ?? undefined,
    workflow: workflow ?? undefined,
    data: dataChange(data),
    observation: observationFromJson(observation),
    reclaimOwn,
    queueing: queueing ?? undefined,
  }];
}

function grantAll(locks) {
  sets.push(locks);
  return {
    set: sets.length - 1,
    keys: locks.keys().map(({ key }) => key),
    fencingToken: locks.fencingToken() ?? null,
    remaining: locks.remaining(),
  };
}

const acquiringSeveral = ({ remaining, reserve, lease, owner, workflow, seen, reclaimOwn }) => ({
  budget: { remaining: big(remaining), reserve: big(reserve) },
  lease: big(lease),
  owner: owner ?? undefined,
  workflow: workflow ?? undefined,
  seen: seen.map(blockedFromJson),
  reclaimOwn,
});

await serve({
  open({ table, endpoint, accessKeyId, owner, requestTimeout }) {
    [granted, sets] = [[], []];
    const credentials = { accessKeyId, secretAccessKey: 'secret' };
    const settings = { table, region: 'local', endpoint, credentials, owner, requestTimeout: big(requestTimeout) };
    client = thrown(() => component.Client.open(settings));
  },
  acquire: (ask) => grant(thrown(() => client.acquire(...acquiring(ask)))),
  tryAcquire(ask) {
    const { tag, val } = thrown(() => client.tryAcquire(...acquiring(ask)));
    return tag === 'granted' ? { granted: grant(val) } : { held: val };
  },
  reclaim({ saved, lease }) {
    const [, options] = acquiring({ key: '', lease, reclaimOwn: false });
    return grant(thrown(() => client.reclaim(savedFromJson(saved), options)));
  },
  resume: ({ saved }) => grant(thrown(() => client.resume(savedFromJson(saved), { data: { tag: 'keep' } }))),
  renew: ({ lock, lease, data }) =>
    thrown(() => granted[lock].renew({ lease: big(lease), data: dataChange(data) })),
  remaining: ({ lock }) => granted[lock].remaining(),
  ensureRemaining: ({ lock, step }) => thrown(() => granted[lock].ensureRemaining(big(step))),
  toSaved: ({ lock }) => savedToJson(granted[lock].toSaved()),
  conditionCheck: ({ lock }) => conditionCheckToJson(thrown(() => granted[lock].conditionCheck())),
  release: ({ lock, deleteRow }) => thrown(() => granted[lock].release({ ...RELEASING, deleteRow })),
  releaseSaved: ({ saved, orLaterGrantOfOwner }) =>
    thrown(() => client.release(savedFromJson(saved), { ...RELEASING, orLaterGrantOfOwner })),
  releaseWorkflow: ({ key, workflow }) => thrown(() => client.releaseWorkflow({ key }, workflow)),
  peek: ({ key }) => thrown(() => client.peek({ key })),
  acquireAll: ({ keys, inOrder, several }) =>
    grantAll(thrown(() => client.acquireAll(keys.map((key) => ({ key })), inOrder, acquiringSeveral(several)))),
  resumeAll: ({ saved, lease }) =>
    grantAll(thrown(() => client.resumeAll(saved.map(savedFromJson), undefined, big(lease)))),
  renewAll: ({ set }) => thrown(() => sets[set].renew()),
  remainingOfAll: ({ set }) => sets[set].remaining(),
  ensureRemainingOfAll: ({ set, step }) => thrown(() => sets[set].ensureRemaining(big(step))),
  conditionChecks: ({ set }) => thrown(() => sets[set].conditionChecks()).map(conditionCheckToJson),
  savedAll: ({ set, keep }) => (keep ? sets[set].toSaved() : sets[set].save()).map(savedToJson),
  releaseAll: ({ set }) => thrown(() => sets[set].release()).map(({ key }) => key),
  releaseAllSaved: ({ saved }) => thrown(() => client.releaseAll(saved.map(savedFromJson))).map(({ key }) => key),
  acquirePermit({ name, permits, several }) {
    const { place, lock } = thrown(() => client.acquirePermit({ key: name }, permits, acquiringSeveral(several)));
    return { place, lock: grant(lock) };
  },
  pairs({ key, count }) {
    const [of, options] = acquiring({ key, lease: 60_000, reclaimOwn: false });
    const started = process.hrtime.bigint();
    for (let pair = 0; pair < count; pair++) {
      const { val: lock } = client.tryAcquire(of, options);
      lock.release(RELEASING);
      lock[Symbol.dispose]();
    }
    return Number(process.hrtime.bigint() - started) / count;
  },
});
