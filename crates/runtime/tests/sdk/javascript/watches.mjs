// Watched directories: what is told of them, and when.

import { FilesystemEventType, InvalidArgumentError, NotFoundError } from 'e2b'
import { SOON, behaviour, failing, same, within } from './proof.mjs'
import { Watch } from './shapes.mjs'

const { CHMOD, CREATE, REMOVE, RENAME, WRITE } = FilesystemEventType

behaviour('watches: a new file is created, given away and written', async (box) => {
  const folder = await box.folder('watch-new')
  const watch = await Watch.on(box, folder)
  await box.files.write(`${folder}/file`, 'content')
  await watch.until('file', WRITE)
  // what was told until then was told in order
  await box.files.makeDir(`${folder}/after`)
  await watch.until('after', CREATE)
  same(watch.of('file'), [CREATE, CHMOD, WRITE])
  await watch.stop()
})

behaviour('watches: every change of a file is told', async (box) => {
  const folder = await box.folder('watch-changes')
  await box.files.write(`${folder}/file`, 'content')
  const watch = await Watch.on(box, folder)
  await box.files.write(`${folder}/file`, 'more')
  await watch.until('file', WRITE)
  await box.out(`chmod 600 ${folder}/file`)
  await watch.until('file', CHMOD)
  await box.files.rename(`${folder}/file`, `${folder}/moved`)
  await watch.until('file', RENAME)
  await watch.until('moved', CREATE)
  await box.files.remove(`${folder}/moved`)
  await watch.until('moved', REMOVE)
  await watch.stop()
})

behaviour('watches: what happens deeper is told only if asked for', async (box) => {
  const folder = await box.folder('watch-deep')
  await box.files.makeDir(`${folder}/a/b`)
  const [deep, flat] = [await Watch.on(box, folder, { recursive: true }), await Watch.on(box, folder)]
  await box.files.write(`${folder}/a/b/file`, 'x')
  await deep.until('a/b/file', CREATE)
  await deep.until('a/b/file', WRITE)
  await box.files.write(`${folder}/last`, 'x')
  await flat.until('last', CREATE)
  same(flat.events.filter(({ name }) => name.includes('/')), [])
  await deep.stop()
  await flat.stop()
})

behaviour('watches: directories made later are watched too', async (box) => {
  const folder = await box.folder('watch-later')
  const watch = await Watch.on(box, folder, { recursive: true })
  await box.out(`mkdir -p ${folder}/new/newer && echo x > ${folder}/new/newer/file`)
  await watch.until('new', CREATE)
  await watch.until('new/newer', CREATE)
  await watch.until('new/newer/file', CREATE)
  await box.files.write(`${folder}/new/newer/second`, 'x')
  await watch.until('new/newer/second', WRITE)
  await watch.stop()
})

behaviour('watches: an event has its entry if asked for', async (box) => {
  const folder = await box.folder('watch-entries')
  const [watch, bare] = [await Watch.on(box, folder, { includeEntry: true }), await Watch.on(box, folder)]
  await box.files.write(`${folder}/file`, 'content')
  const { entry } = await watch.until('file', WRITE)
  same([entry.name, entry.path, entry.owner, entry.size], ['file', `${folder}/file`, 'user', 7])
  same((await bare.until('file', WRITE)).entry, undefined)
  await box.files.remove(`${folder}/file`)
  same((await watch.until('file', REMOVE)).entry, undefined)
  await watch.stop()
  await bare.stop()
})

behaviour('watches: network mounts may be allowed', async (box) => {
  const folder = await box.folder('watch-network')
  const watch = await Watch.on(box, folder, { allowNetworkMounts: true })
  await box.files.write(`${folder}/file`, 'x')
  await watch.until('file', CREATE)
  await watch.stop()
})

behaviour('watches: nothing is told of a watch that was stopped', async (box) => {
  const folder = await box.folder('watch-stopped')
  const [stopped, going] = [await Watch.on(box, folder), await Watch.on(box, folder)]
  await stopped.stop()
  await box.files.write(`${folder}/file`, 'x')
  await going.until('file', WRITE)
  await going.stop()
  same(stopped.events, [])
})

behaviour('watches: the end of a watch is told', async (box) => {
  const folder = await box.folder('watch-ended')
  const ended = new Promise((onExit) => box.files.watchDir(folder, () => {}, { onExit, timeoutMs: SOON }))
  await within(30_000, 'the end of the watch', ended)
})

behaviour('watches: what cannot be watched is said', async (box) => {
  const folder = await box.folder('watch-refused')
  await box.files.write(`${folder}/file`, 'x')
  await failing(NotFoundError, '', () => Watch.on(box, `${folder}/missing`))
  await failing(InvalidArgumentError, '', () => Watch.on(box, `${folder}/file`))
})

behaviour('watches: a thousand events are told in order', async (box) => {
  const folder = await box.folder('watch-many')
  const watch = await Watch.on(box, folder)
  await box.out(`cd ${folder}; for n in $(seq 1000); do mkdir $n; done`)
  await watch.until('1000', CREATE)
  const created = watch.events.filter(({ type }) => type === CREATE).map(({ name }) => name)
  same(created, Array.from({ length: 1000 }, (_, n) => String(n + 1)))
  await watch.stop()
})
