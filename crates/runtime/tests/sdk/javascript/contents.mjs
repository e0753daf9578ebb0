// What is in files: written and read as text, bytes, blobs and streams, small and large.

import { createHash } from 'node:crypto'
import { AuthenticationError, FileNotFoundError, InvalidArgumentError } from 'e2b'
import { PATIENCE, behaviour, failing, same, sure } from './proof.mjs'

const LARGE = 200 * 1024 * 1024
// every byte there is, and enough of them for several pieces
const BYTES = Uint8Array.from({ length: 1 << 20 }, (_, n) => n % 256)

const isSame = (found, wanted) => Buffer.compare(Buffer.from(found), Buffer.from(wanted)) === 0

async function all(stream) {
  const pieces = []
  for await (const piece of stream) pieces.push(piece)
  return Buffer.concat(pieces)
}

behaviour('contents: text is written and read', async (box) => {
  const folder = await box.folder('text')
  for (const [name, text] of [['plain', 'hello\n'], ['empty', ''], ['scripts', 'Grüße 日本語 🦀\r\n\ttabbed']]) {
    const info = await box.files.write(`${folder}/${name}`, text)
    same([info.name, info.path, info.type], [name, `${folder}/${name}`, 'file'])
    same(await box.files.read(`${folder}/${name}`), text)
    same(await box.files.read(`${folder}/${name}`, { format: 'text' }), text)
  }
})

behaviour('contents: bytes, blobs and streams are written and read', async (box) => {
  const folder = await box.folder('bytes')
  for (const [name, wanted] of [['all', BYTES], ['empty', new Uint8Array()]]) {
    for (const data of [wanted.slice().buffer, new Blob([wanted]), new Blob([wanted]).stream()]) {
      await box.files.write(`${folder}/${name}`, data)
      sure(isSame(await box.files.read(`${folder}/${name}`, { format: 'bytes' }), wanted), `${name} differs as bytes`)
      const blob = await box.files.read(`${folder}/${name}`, { format: 'blob' })
      sure(isSame(await blob.arrayBuffer(), wanted), `${name} differs as a blob`)
      const stream = await box.files.read(`${folder}/${name}`, { format: 'stream' })
      sure(isSame(await all(stream), wanted), `${name} differs as a stream`)
    }
  }
})

behaviour('contents: a body goes as a form or as it is', async (box) => {
  const folder = await box.folder('bodies')
  for (const useOctetStream of [false, true]) {
    await box.files.write(`${folder}/file`, BYTES.slice().buffer, { useOctetStream })
    const found = await box.files.read(`${folder}/file`, { format: 'bytes' })
    sure(isSame(found, BYTES), `octet stream ${useOctetStream} differs`)
  }
})

behaviour('contents: bodies are compressed on the way', async (box) => {
  const folder = await box.folder('gzip')
  for (const [up, down] of [[true, true], [true, false], [false, true]]) {
    const info = await box.files.write(`${folder}/file`, BYTES.slice().buffer, { gzip: up })
    same(info.path, `${folder}/file`)
    same(Number(await box.out(`stat -c %s ${folder}/file`)), BYTES.length)
    const found = await box.files.read(`${folder}/file`, { format: 'bytes', gzip: down })
    sure(isSame(found, BYTES), `gzip ${up} ${down} differs`)
  }
  const text = 'Grüße\n'.repeat(1000)
  await box.files.write(`${folder}/text`, text, { gzip: true })
  same(await box.files.read(`${folder}/text`, { gzip: true }), text)
  const stream = await box.files.read(`${folder}/text`, { format: 'stream', gzip: true })
  same((await all(stream)).toString(), text)
})

behaviour('contents: many files are written at once', async (box) => {
  const folder = await box.folder('many')
  const home = folder.replace('/home/user/', '')
  const numbers = Array.from({ length: 20 }, (_, n) => n)
  const files = numbers.map((n) => ({ path: `${folder}/deep/${n}`, data: `number ${n}` }))
  files.push({ path: `${home}/relative`, data: new TextEncoder().encode('relative').buffer })
  const paths = (infos) => infos.map(({ path }) => path)
  const wanted = [...numbers.map((n) => `${folder}/deep/${n}`), `${folder}/relative`]
  same(paths(await box.files.writeFiles(files)), wanted)
  same(paths(await box.files.write(files)), wanted)
  for (const n of numbers) same(await box.files.read(`${folder}/deep/${n}`), `number ${n}`)
  same(await box.files.read(`${home}/relative`), 'relative')
  same(await box.files.writeFiles([]), [])
})

behaviour('contents: a file is overwritten in place', async (box) => {
  const path = `${await box.folder('over')}/file`
  await box.files.write(path, 'long content')
  const before = await box.out(`chmod 755 ${path}; stat -c '%i %a' ${path}`)
  await box.files.write(path, 'short')
  same(await box.files.read(path), 'short')
  same(await box.out(`stat -c '%i %a' ${path}`), before)
})

behaviour('contents: files and their parents belong to who wrote them', async (box) => {
  const folder = await box.folder('owners')
  await box.files.write(`${folder}/a/b/mine`, 'mine')
  const mine = await box.out(`cd ${folder}; stat -c '%U:%G %a' a a/b a/b/mine`)
  same(mine, 'user:user 755\nuser:user 755\nuser:user 644\n')
  await box.files.write(`${folder}/c/theirs`, 'theirs', { user: 'root' })
  same(await box.out(`cd ${folder}; stat -c '%U:%G' c c/theirs`), 'root:root\nroot:root\n')
  same(await box.files.read(`${folder}/c/theirs`, { user: 'root' }), 'theirs')
})

behaviour('contents: paths may be relative or begin with a tilde', async (box) => {
  const home = (await box.folder('paths')).replace('/home/user/', '')
  for (const path of [`${home}/one`, `~/${home}/two`, `${home}/deep/../three`, `${home}/with space & plus+%20é`]) {
    const info = await box.files.write(path, path)
    same(await box.files.read(path), path)
    sure(info.path.startsWith(`/home/user/${home}/`), info.path)
  }
})

behaviour('contents: what cannot be read or written is said', async (box) => {
  const folder = await box.folder('refused')
  for (const format of ['text', 'bytes', 'blob', 'stream']) {
    await failing(FileNotFoundError, 'does not exist', () => box.files.read(`${folder}/missing`, { format }))
    await failing(InvalidArgumentError, 'is a directory', () => box.files.read(folder, { format }))
  }
  await failing(InvalidArgumentError, '', () => box.files.write(folder, 'over a directory'))
  const user = 'nobody-here'
  await failing(AuthenticationError, user, () => box.files.read('any', { user }))
  await failing(AuthenticationError, user, () => box.files.write('any', 'x', { user }))
})

behaviour('contents: metadata stays with a file', async (box) => {
  const folder = await box.folder('metadata')
  const path = `${folder}/file`
  const kept = { author: 'someone', purpose: 'to be found again' }
  const metadata = { Author: 'someone', purpose: 'to be found again' }
  same((await box.files.write(path, 'x', { metadata })).metadata, kept)
  same((await box.files.getInfo(path)).metadata, kept)
  same((await box.files.list(folder)).map((entry) => entry.metadata), [kept])
  same((await box.files.rename(path, `${path}-2`)).metadata, kept)
  const options = { metadata: { only: 'this' }, useOctetStream: true }
  same((await box.files.write(`${path}-2`, 'y', options)).metadata, { only: 'this' })
  await box.files.write(`${path}-2`, 'z')
  same((await box.files.getInfo(`${path}-2`)).metadata, undefined)
})

behaviour('contents: metadata that cannot be kept is refused', async (box) => {
  const path = `${await box.folder('refused-metadata')}/file`
  for (const metadata of [{ key: 'not äscii' }, { key: 'v'.repeat(5000) }, { ['k'.repeat(300)]: 'v' }]) {
    await failing(InvalidArgumentError, '', () => box.files.write(path, 'x', { metadata }))
  }
})

behaviour('contents: URLs serve who has no package', async (box) => {
  const path = `${await box.folder('urls')}/file`
  const body = new FormData()
  body.append('file', new Blob(['by url']), 'any')
  same((await fetch(await box.sandbox.uploadUrl(path), { method: 'POST', body })).status, 200)
  same(await box.files.read(path), 'by url')
  same(await (await fetch(await box.sandbox.downloadUrl(path))).text(), 'by url')
})

// A generator of numbers, so that no block is like another and every run is like the last.
function* blocks() {
  const block = Buffer.alloc(1 << 20)
  let state = 7
  for (let at = 0; at < block.length; at += 4) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    block.writeUInt32LE(state, at)
  }
  for (let n = 0; n < LARGE / block.length; n++) {
    block.writeUInt32BE(n)
    yield Uint8Array.from(block)
  }
}

behaviour('contents: two hundred megabytes go both ways', async (box) => {
  const path = `${await box.folder('large')}/file`
  const [hash, back] = [createHash('sha256'), createHash('sha256')]
  for (const block of blocks()) hash.update(block)
  const wanted = hash.digest('hex')
  await box.files.write(path, ReadableStream.from(blocks()), { useOctetStream: true, requestTimeoutMs: PATIENCE })
  same((await box.files.getInfo(path)).size, LARGE)
  same((await box.out(`sha256sum < ${path}`)).split(' ')[0], wanted)
  const stream = await box.files.read(path, { format: 'stream', requestTimeoutMs: PATIENCE })
  for await (const piece of stream) back.update(piece)
  same(back.digest('hex'), wanted)
  await box.files.remove(path)
})
