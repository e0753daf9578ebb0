// Entries of directories: listed, made, moved, removed, looked up and told about.

import { AuthenticationError, FileNotFoundError, FileType, InvalidArgumentError, NotFoundError } from 'e2b'
import { behaviour, failing, same, sure } from './proof.mjs'

behaviour('folders: a directory is listed to the depth asked for', async (box) => {
  const folder = await box.folder('list')
  const make = 'mkdir -p b/deep/deeper a; touch z b/one b/deep/two b/deep/deeper/three; ln -s b link'
  await box.out(`cd ${folder}; ${make}`)
  const deep = ['b/deep/deeper', 'b/deep/deeper/three', 'b/deep/two']
  for (const [depth, wanted] of [
    [1, ['a', 'b', 'link', 'z']],
    [2, ['a', 'b', 'b/deep', 'b/one', 'link', 'z']],
    [9, ['a', 'b', 'b/deep', ...deep, 'b/one', 'link', 'z']],
  ]) {
    const found = await box.files.list(folder, { depth })
    same(found.map(({ path }) => path), wanted.map((path) => `${folder}/${path}`))
  }
  same((await box.files.list(folder)).map(({ name }) => name), ['a', 'b', 'link', 'z'])
  const linked = (await box.files.list(`${folder}/link`)).map(({ path }) => path)
  same(linked, [`${folder}/link/deep`, `${folder}/link/one`])
  same(await box.files.list(`${folder}/a`), [])
})

behaviour('folders: what cannot be listed is said', async (box) => {
  const folder = await box.folder('unlisted')
  await box.files.write(`${folder}/file`, 'x')
  await failing(NotFoundError, '', () => box.files.list(`${folder}/missing`))
  await failing(InvalidArgumentError, '', () => box.files.list(`${folder}/file`))
  await failing(InvalidArgumentError, 'depth', () => box.files.list(folder, { depth: 0 }))
  await failing(AuthenticationError, 'nobody-here', () => box.files.list(folder, { user: 'nobody-here' }))
})

behaviour('folders: an entry tells all about itself', async (box) => {
  const folder = await box.folder('info')
  await box.files.write(`${folder}/file`, '12345')
  await box.out(`cd ${folder}; chmod 640 file; mkdir dir; chmod 1777 dir`)
  for (const info of [await box.files.getInfo(`${folder}/file`), (await box.files.list(folder))[1]]) {
    same([info.name, info.path, info.type, info.size], ['file', `${folder}/file`, FileType.FILE, 5])
    same([info.mode, info.permissions, info.owner, info.group], [0o640, '-rw-r-----', 'user', 'user'])
    same([info.symlinkTarget, info.metadata], [undefined, undefined])
    const age = Date.now() - info.modifiedTime
    sure(Math.abs(age) < 300_000, `${info.modifiedTime} is ${age} ms ago`)
  }
  const dir = await box.files.getInfo(`${folder}/dir`)
  same([dir.name, dir.type, dir.permissions], ['dir', FileType.DIR, 'dtrwxrwxrwx'])
  await failing(FileNotFoundError, '', () => box.files.getInfo(`${folder}/missing`))
})

behaviour('folders: a link tells where it leads', async (box) => {
  const folder = await box.folder('links')
  const links = 'ln -s file to-file; ln -s dir to-dir; ln -s to-file twice; ln -s no broken'
  await box.out(`cd ${folder}; echo x > file; mkdir dir; ${links}`)
  for (const [name, target] of [['to-file', 'file'], ['to-dir', 'dir'], ['twice', 'file'], ['broken', 'broken']]) {
    const info = await box.files.getInfo(`${folder}/${name}`)
    same([info.name, info.path, info.symlinkTarget], [name, `${folder}/${name}`, `${folder}/${target}`])
    sure(info.permissions.startsWith('L'), info.permissions)
  }
  same(await box.files.exists(`${folder}/broken`), true)
})

behaviour('folders: directories are made with their parents once', async (box) => {
  const folder = await box.folder('made')
  same(await box.files.makeDir(`${folder}/a/b/c`), true)
  same(await box.files.makeDir(`${folder}/a/b/c`), false)
  same(await box.files.makeDir(`${folder}/a`), false)
  const made = await box.out(`cd ${folder}; stat -c '%U:%G %a %F' a a/b a/b/c`)
  same(made, 'user:user 755 directory\n'.repeat(3))
  await box.files.write(`${folder}/file`, 'x')
  await failing(InvalidArgumentError, '', () => box.files.makeDir(`${folder}/file`))
  same(await box.files.makeDir(`${folder}/of-root`, { user: 'root' }), true)
  same((await box.files.getInfo(`${folder}/of-root`)).owner, 'root')
})

behaviour('folders: entries are renamed', async (box) => {
  const folder = await box.folder('renamed')
  await box.files.write(`${folder}/old`, 'content')
  const info = await box.files.rename(`${folder}/old`, `${folder}/new/place`)
  same([info.name, info.path, info.type, info.size], ['place', `${folder}/new/place`, FileType.FILE, 7])
  same(await box.files.exists(`${folder}/old`), false)
  same(await box.files.read(`${folder}/new/place`), 'content')
  await box.files.write(`${folder}/other`, 'other')
  await box.files.rename(`${folder}/other`, `${folder}/new/place`)
  same(await box.files.read(`${folder}/new/place`), 'other')
  same((await box.files.rename(`${folder}/new`, `${folder}/newer`)).type, FileType.DIR)
  same(await box.files.read(`${folder}/newer/place`), 'other')
  await failing(FileNotFoundError, '', () => box.files.rename(`${folder}/missing`, `${folder}/anything`))
})

behaviour('folders: entries are removed whatever they are', async (box) => {
  const folder = await box.folder('removed')
  await box.out(`cd ${folder}; mkdir -p dir/deep; touch file dir/deep/file; ln -s dir link`)
  for (const name of ['file', 'link', 'dir', 'never-there']) {
    await box.files.remove(`${folder}/${name}`)
    same(await box.files.exists(`${folder}/${name}`), false)
  }
  same(await box.files.list(folder), [])
})

behaviour('folders: it is known what exists', async (box) => {
  const folder = await box.folder('exists')
  await box.files.write(`${folder}/file`, '')
  for (const [path, wanted] of [[folder, true], [`${folder}/file`, true], [`${folder}/no/no`, false], ['~', true]]) {
    same([path, await box.files.exists(path)], [path, wanted])
  }
  await failing(AuthenticationError, 'nobody-here', () => box.files.exists(folder, { user: 'nobody-here' }))
})
