// Converts a component to an ES module: node transpile.mjs COMPONENT NAME DIRECTORY

import { transpile, writeFiles } from '@bytecodealliance/jco-transpile';

const [component, name, outDir] = process.argv.slice(2);
if (!outDir) {
  console.error('usage: node transpile.mjs COMPONENT NAME DIRECTORY');
  process.exit(2);
}
const { files } = await transpile(component, { name, outDir });
await writeFiles(files);
