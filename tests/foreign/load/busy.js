// JSON, compression and hashes on the thread pool, files, timers: what comes out is known.
const crypto = require('crypto'), fs = require('fs'), zlib = require('zlib');
const rounds = Number(process.argv[2] || 30);
const hash = crypto.createHash('sha256');
const call = (f, ...args) => new Promise((done, fail) => f(...args, (error, value) => (error ? fail(error) : done(value))));

async function round(r) {
  const object = Array.from({ length: 2000 }, (_, i) => ({ i, r, text: 'x'.repeat(i % 50) }));
  const text = JSON.stringify(JSON.parse(JSON.stringify(object)));
  const packed = await Promise.all([1, 5, 9].map((level) => call(zlib.deflate, text, { level })));
  const plain = await Promise.all(packed.map((bytes) => call(zlib.inflate, bytes)));
  const keys = await Promise.all([1, 2, 3, 4].map((n) => call(crypto.pbkdf2, `p${n}`, `s${r}`, 3000, 32, 'sha256')));
  await fs.promises.writeFile(`f${r % 3}`, text);
  const back = await fs.promises.readFile(`f${r % 3}`);
  await new Promise((done) => setTimeout(done, 2));
  for (const bytes of [...plain, ...keys, back]) hash.update(bytes);
}

(async () => {
  for (let r = 0; r < rounds; r++) await round(r);
  console.log(hash.digest('hex'));
})();
