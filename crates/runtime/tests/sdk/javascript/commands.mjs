// Commands: how they are run, fed, followed, found again and ended.

import { createHash } from 'node:crypto'
import { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, SandboxError, TimeoutError } from 'e2b'
import { SOON, behaviour, failing, same, sure, until } from './proof.mjs'
import { connect, start } from './shapes.mjs'

const range = (count) => Array.from({ length: count }, (_, n) => n)

behaviour('commands: the sandbox is running', async (box) => {
  same(await box.sandbox.isRunning(), true)
})

behaviour('commands: output and exit code are given', async (box) => {
  const { stdout, stderr, exitCode, error } = await box.commands.run('echo out; echo err >&2')
  same([stdout, stderr, exitCode, error], ['out\n', 'err\n', 0, undefined])
  same(await box.out('true'), '')
})

behaviour('commands: text comes through unchanged', async (box) => {
  for (const text of ['!@#$%^&*()_+-={}[]|:;<>,.?~`', 'one\ntwo\n\n  three', 'Grüße 日本語 🦀', '"double" \\ back']) {
    same(await box.out(`printf %s '${text.replaceAll("'", "'\\''")}'`), text)
  }
})

behaviour('commands: broken UTF-8 is replaced and the rest kept', async (box) => {
  same(await box.out(String.raw`printf 'a\xff\xfeb'`), 'a\ufffd\ufffdb')
})

behaviour('commands: long output is whole and in order', async (box) => {
  const { stdout, stderr } = await box.commands.run('seq 300000; seq 300000 >&2')
  const wanted = range(300000).map((n) => `${n + 1}\n`).join('')
  sure(stdout === wanted, `stdout of ${stdout.length} characters differs from ${wanted.length}`)
  sure(stderr === wanted, `stderr of ${stderr.length} characters differs from ${wanted.length}`)
})

behaviour('commands: a failure tells its code and output', async (box) => {
  const error = await failing(CommandExitError, '', () => box.commands.run('echo out; echo err >&2; exit 3'))
  same([error.exitCode, error.stdout, error.stderr, error.error], [3, 'out\n', 'err\n', 'exit status 3'])
  same((await failing(CommandExitError, '', () => box.commands.run('no-such-command-here'))).exitCode, 127)
})

behaviour('commands: a death by signal tells the signal', async (box) => {
  for (const [signal, words] of [['KILL', 'signal: killed'], ['TERM', 'signal: terminated']]) {
    const error = await failing(CommandExitError, '', () => box.commands.run(`kill -${signal} $$`))
    same([error.exitCode, error.error], [-1, words])
  }
})

behaviour('commands: commands run as the user asked for', async (box) => {
  same(await box.out('whoami; id -gn; echo $HOME $USER $LOGNAME'), 'user\nuser\n/home/user user user\n')
  same(await box.out('whoami; id -u; echo $HOME', { user: 'root' }), 'root\n0\n/root\n')
  same(await box.out('whoami', { user: 'user' }), 'user\n')
  await failing(AuthenticationError, 'nobody-here', () => box.commands.run('true', { user: 'nobody-here' }))
})

behaviour('commands: commands run where they are asked to', async (box) => {
  const folder = await box.folder('cwd')
  same(await box.out('pwd'), '/home/user\n')
  same(await box.out('pwd', { cwd: '/tmp' }), '/tmp\n')
  same(await box.out('pwd', { cwd: folder.replace('/home/user/', '') }), `${folder}\n`)
  same(await box.out('pwd', { cwd: '~' }), '/home/user\n')
  const nowhere = () => box.commands.run('true', { cwd: '/no/such/place' })
  await failing(InvalidArgumentError, "'/no/such/place' does not exist", nowhere)
})

behaviour('commands: commands have the environment asked for', async (box) => {
  const envs = { ONE: '1', SPACES: ' a  b ', QUOTE: '\'"$HOME"\'', EMPTY: '', LINES: 'a\nb' }
  const print = 'printf "%s|" "$ONE" "$SPACES" "$QUOTE" "$EMPTY" "$LINES"'
  same(await box.out(print, { envs }), [...Object.values(envs), ''].join('|'))
  same(await box.out('echo $HOME', { envs: { HOME: '/tmp' } }), '/tmp\n')
  same(await box.out('echo $ONE'), '\n')
  // set for the daemon in the harness of this driver
  same(await box.out('echo $SECRET_OF_THE_DAEMON'), '\n')
})

behaviour('commands: output is heard while the command runs', async (box) => {
  const running = await start(box, 'echo one; echo bad >&2; read word; echo got $word', { stdin: true })
  await running.out.until('one\n')
  await running.err.until('bad\n')
  sure(!running.isDone, 'it ended before it was answered')
  await box.commands.sendStdin(running.pid, 'now\n')
  const { stdout, stderr } = await running.end
  same([stdout, stderr, running.out.text], ['one\ngot now\n', 'bad\n', stdout])
})

behaviour('commands: callbacks hear a command that is waited for', async (box) => {
  const [out, err] = [[], []]
  const callbacks = { onStdout: (piece) => void out.push(piece), onStderr: (piece) => void err.push(piece) }
  await box.commands.run('echo one; echo two >&2', callbacks)
  same([out, err], [['one\n'], ['two\n']])
})

behaviour('commands: a command in the background is waited for later', async (box) => {
  const first = await box.commands.run('read line; echo $line', { background: true, stdin: true })
  const second = await box.commands.run('exit 4', { background: true })
  sure(first.pid > 0 && first.pid !== second.pid, `${first.pid} and ${second.pid}`)
  same((await failing(CommandExitError, '', () => second.wait())).exitCode, 4)
  await box.commands.sendStdin(first.pid, 'done\n')
  same((await first.wait()).stdout, 'done\n')
})

behaviour('commands: what a command leaves in the background runs on', async (box) => {
  const pid = Number(await box.out('sleep 1000 >/dev/null 2>&1 & echo $!'))
  sure(await box.isAlive(pid), `${pid} died with the shell that started it`)
  await box.out(`kill ${pid}`)
})

behaviour('commands: input is text or bytes and can be closed', async (box) => {
  for (const data of ['Grüße\n', new TextEncoder().encode('Grüße\n')]) {
    const running = await start(box, 'cat', { stdin: true })
    await box.commands.sendStdin(running.pid, data)
    await running.out.until('Grüße\n')
    same(running.out.pieces, ['Grüße\n'])
    await box.commands.closeStdin(running.pid)
    same((await running.end).stdout, 'Grüße\n')
  }
})

behaviour('commands: a handle feeds its own command', async (box) => {
  const handle = await box.commands.run('cat', { background: true, stdin: true })
  await handle.sendStdin('first ')
  await handle.sendStdin(new TextEncoder().encode('second'))
  await handle.closeStdin()
  same((await handle.wait()).stdout, 'first second')
})

behaviour('commands: input of a megabyte is whole', async (box) => {
  const data = range(131072).map((n) => `${String(n).padStart(7, '0')}\n`).join('')
  const running = await start(box, 'sha256sum', { stdin: true })
  // each more than a pipe holds
  const size = 262144
  for (let at = 0; at < data.length; at += size) await box.commands.sendStdin(running.pid, data.slice(at, at + size))
  await box.commands.closeStdin(running.pid)
  same((await running.end).stdout.split(' ')[0], createHash('sha256').update(data).digest('hex'))
})

behaviour('commands: a command without input reads none', async (box) => {
  same(await box.out('cat'), '')
  const running = await start(box, 'exec sleep 1000', { stdin: false })
  await failing(SandboxError, '', () => box.commands.sendStdin(running.pid, 'lost'))
  same(await running.handle.kill(), true)
})

behaviour('commands: input to nobody is not found', async (box) => {
  await failing(NotFoundError, '', () => box.commands.sendStdin(box.nobody, 'lost'))
  await failing(NotFoundError, '', () => box.commands.closeStdin(box.nobody))
})

behaviour('commands: a command that takes too long is killed', async (box) => {
  const running = await start(box, 'exec sleep 1000', { timeoutMs: SOON })
  await failing(TimeoutError, '', () => running.end)
  await until(`${running.pid} is gone`, () => box.isGone(running.pid))
  await failing(TimeoutError, '', () => box.commands.run('sleep 1000', { timeoutMs: 300 }))
})

behaviour('commands: what a killed command left in the background runs on', async (box) => {
  const running = await start(box, 'sleep 1000 & echo $!; wait', { timeoutMs: SOON })
  await running.out.until('\n')
  const left = Number(running.out.text)
  await failing(TimeoutError, '', () => running.end)
  await until('the shell is gone', () => box.isGone(running.pid))
  sure(await box.isAlive(left), `${left} was killed with its shell`)
  await box.out(`kill ${left}`)
})

behaviour('commands: no time limit is none', async (box) => {
  same(await box.out('sleep 0.1; echo slept', { timeoutMs: 0 }), 'slept\n')
})

behaviour('commands: a killed command is dead', async (box) => {
  const running = await start(box, 'exec sleep 1000')
  same(await running.handle.kill(), true)
  const error = await failing(CommandExitError, '', () => running.end)
  same([error.exitCode, error.error], [-1, 'signal: killed'])
  same(await box.commands.kill(running.pid), false)
  same(await box.commands.kill(box.nobody), false)
})

behaviour('commands: running commands are listed', async (box) => {
  const running = await start(box, 'exec sleep 1000', { envs: { LISTED: 'yes' }, cwd: '/tmp' })
  const listed = async () => (await box.commands.list()).filter(({ pid }) => pid === running.pid)
  const [{ cmd, args, envs, cwd, tag }] = await listed()
  same([cmd, args, envs, cwd], ['/bin/bash', ['-l', '-c', 'exec sleep 1000'], { LISTED: 'yes' }, '/tmp'])
  sure(!tag, `it has tag ${tag}`)
  same(await box.commands.kill(running.pid), true)
  await until('it is listed no more', async () => (await listed()).length === 0)
})

behaviour('commands: a running command is followed by others too', async (box) => {
  const first = await start(box, 'echo early; while read line; do echo $line; done', { stdin: true })
  await first.out.until('early\n')
  const second = await connect(box, first.pid)
  same(second.pid, first.pid)
  await box.commands.sendStdin(first.pid, 'both\n')
  await first.out.until('both\n')
  await second.out.until('both\n')
  await box.commands.closeStdin(first.pid)
  same((await first.end).stdout, 'early\nboth\n')
  same((await second.end).stdout, 'both\n')
  await failing(NotFoundError, String(box.nobody), () => box.commands.connect(box.nobody))
})

behaviour('commands: a command outlives who listens to it', async (box) => {
  const handle = await box.commands.run('read a; echo $a; exit 5', { background: true, stdin: true })
  await handle.disconnect()
  sure(await box.isAlive(handle.pid), 'it died when its client left')
  const again = await connect(box, handle.pid)
  await box.commands.sendStdin(handle.pid, 'later\n')
  const error = await failing(CommandExitError, '', () => again.end)
  same([error.exitCode, error.stdout], [5, 'later\n'])
})

behaviour('commands: output that nobody hears holds nothing up', async (box) => {
  const folder = await box.folder('unheard')
  const command = `read go; head -c 20000000 /dev/zero; touch ${folder}/written`
  const handle = await box.commands.run(command, { background: true, stdin: true })
  await handle.disconnect()
  await box.commands.sendStdin(handle.pid, 'go\n')
  await until('all is written', () => box.files.exists(`${folder}/written`))
})

behaviour('commands: an end is told for a while', async (box) => {
  const running = await start(box, 'exit 6')
  await failing(CommandExitError, '', () => running.end)
  const again = await connect(box, running.pid)
  same((await failing(CommandExitError, '', () => again.end)).exitCode, 6)
})

behaviour('commands: many commands run at once', async (box) => {
  const outputs = await Promise.all(range(50).map((n) => box.out(`echo ${n}; sleep 0.1; echo ${n}`)))
  same(outputs, range(50).map((n) => `${n}\n${n}\n`))
})
