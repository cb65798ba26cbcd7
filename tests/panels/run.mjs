// Run exported functions of the front-end: each line on stdin is a JSON list of [name, ...arguments], each line on
// stdout the JSON list of their results.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const front = await import(pathToFileURL(process.argv[2]));
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(JSON.parse(line).map(([name, ...args]) => front[name](...args))));
}
