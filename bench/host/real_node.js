// A real program for bench/host.py: objects and strings on the engine's own heap, buffers and typed arrays outside of
// it, JSON, regular expressions, compression. Prints a digest of what it computed.
'use strict';
const crypto = require('crypto');
const zlib = require('zlib');

const digest = crypto.createHash('sha256');
let state = 1;
const below = end => ((state = (Math.imul(state, 1103515245) + 12345) >>> 0) >>> 8) % end;

const records = [];
for (let id = 0; id < 40000; ++id) {
  const tags = Array.from({length: below(5)}, () => `tag${below(50)}`);
  records.push({id, text: 'abcdefgh'.repeat(below(12)), tags, place: {x: below(1000), y: below(1000)}});
}
const byTag = new Map();
for (const record of records)
  for (const tag of record.tags) byTag.set(tag, (byTag.get(tag) || '') + record.text.slice(0, below(9)));
digest.update(JSON.stringify([...byTag].sort()));

const text = JSON.stringify(records);
for (let round = 0; round < 3; ++round) digest.update(String(JSON.parse(text).length));
digest.update(String(text.replace(/(ab|cd)+/g, match => match.toUpperCase()).match(/[A-Z]{4}/g).length));

const kept = [];
for (let round = 0; round < 20000; ++round) {
  const buffer = Buffer.allocUnsafeSlow(64 + below(16000)).fill(round & 255);
  if (round % 20 === 0) kept.push(buffer);
  if (kept.length > 300) kept.splice(below(300), 1);
}
digest.update(Buffer.concat(kept));
for (let round = 0; round < 12; ++round) digest.update(zlib.gunzipSync(zlib.gzipSync(text.slice(round * 1000, 4e5))));
const numbers = Array.from({length: 60}, (_, size) => new Float64Array(1000 * size + 1).fill(size));
digest.update(String(numbers.reduce((sum, array) => sum + array.reduce((a, b) => a + b, 0), 0)));
console.log(digest.digest('hex'));
