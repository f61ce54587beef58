// Renders the fields of a state as Step Functions does: node render.mjs FOLDER, where FOLDER has node_modules/jsonata.
//
// Each line of the input is {template, bindings, millis, uuids}, each line of the output {value} or {error}. The clock
// stands at `millis`, and the random numbers are `uuids`, one after the other.
import { createRequire } from 'node:module'
import readline from 'node:readline'

const jsonata = createRequire(`${process.argv[2]}/`)('jsonata')

async function render(value, scene) {
  if (Array.isArray(value)) {
    const values = []
    for (const one of value) values.push(await render(one, scene))
    return values
  }
  if (value !== null && typeof value === 'object') {
    const fields = {}
    for (const [name, one] of Object.entries(value)) fields[name] = await render(one, scene)
    return fields
  }
  const query = typeof value === 'string' && /^\{%(.*)%\}$/s.exec(value)
  if (!query) return value
  const expression = jsonata(query[1])
  expression.registerFunction('millis', () => scene.millis)
  expression.registerFunction('uuid', () => scene.uuids.shift())
  const result = await expression.evaluate({}, scene.bindings)
  if (result === undefined) throw new Error(`no value: ${query[1]}`)
  return JSON.parse(JSON.stringify(result))
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const scene = JSON.parse(line)
  const answer = await render(scene.template, scene).then(
    value => ({ value }),
    error => ({ error: error.message ?? String(error) }),
  )
  process.stdout.write(`${JSON.stringify(answer)}\n`)
}
