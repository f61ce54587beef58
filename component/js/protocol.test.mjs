// What a caller learns when a request had no answer, or was never sent. Needs the transpiled component.

import assert from 'node:assert/strict';
import test from 'node:test';
import { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { CONFIG, Locks } from './lambda-lock-protocol.mjs';

const credentials = { accessKeyId: 'id', secretAccessKey: 'secret' };
const nobodyListens = { endpoint: 'http://127.0.0.1:1', region: 'eu-central-1' };

for (const name of Object.keys(process.env)) if (name.startsWith('AWS_')) delete process.env[name];
process.env.AWS_CONFIG_FILE = process.env.AWS_SHARED_CREDENTIALS_FILE = '/nowhere';
process.env.AWS_EC2_METADATA_DISABLED = 'true';

async function failure(config) {
  const locks = new Locks(new DynamoDBClient({ ...CONFIG, ...config }), { table: 'locks' });
  return locks.peek('k').then(() => assert.fail('it was read'), (error) => error);
}

test('an unknown outcome has its cause', async () => {
  const error = await failure({ ...nobodyListens, credentials });
  assert.equal(error.kind.tag, 'unknown');
  assert.equal(error.cause.code, 'ECONNREFUSED');
});

test('what was never sent is no unknown outcome', async () => {
  assert.match((await failure({ credentials })).message, /Region is missing/);
  assert.equal((await failure(nobodyListens)).name, 'CredentialsProviderError');
});
