// Terminals: how they are opened, typed into, resized, found again and ended.

import { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, SandboxError, TimeoutError } from 'e2b'
import { SOON, behaviour, failing, same } from './proof.mjs'
import { connectTerminal, openTerminal, start } from './shapes.mjs'

const SMALL = { rows: 24, cols: 80 }
const bytes = (text) => new TextEncoder().encode(text)

async function leave(terminal) {
  await terminal.box.pty.sendInput(terminal.pid, bytes('exit 0\n'))
  same((await terminal.end).exitCode, 0)
}

behaviour('terminals: a terminal answers and ends with its shell', async (box) => {
  const terminal = await openTerminal(box, SMALL)
  await terminal.types('echo $((6*7))-and-on', '42-and-on')
  await terminal.types('test -t 0 && echo it-is-$((1+1))', 'it-is-2')
  await box.pty.sendInput(terminal.pid, bytes('exit 7\n'))
  same((await failing(CommandExitError, '', () => terminal.end)).exitCode, 7)
})

behaviour('terminals: a terminal has the size it is given', async (box) => {
  const terminal = await openTerminal(box, SMALL)
  await terminal.types('stty size', '24 80')
  await box.pty.resize(terminal.pid, { rows: 40, cols: 132 })
  await terminal.types('stty size', '40 132')
  await leave(terminal)
})

behaviour('terminals: a resize is told to who runs in it', async (box) => {
  const terminal = await openTerminal(box, SMALL)
  const told = 'trap "stty size; kill \\$!; exit" WINCH; echo ready-$((1+1)); sleep 1000 & wait'
  const after = await terminal.types(`bash -c '${told}'`, 'ready-2')
  await box.pty.resize(terminal.pid, { rows: 30, cols: 100 })
  await terminal.screen.until('30 100', after)
  await leave(terminal)
})

behaviour('terminals: a terminal has the user, place and environment asked for', async (box) => {
  let terminal = await openTerminal(box, SMALL)
  const wanted = '<user /home/user xterm-256color C.UTF-8 C.UTF-8>'
  await terminal.types('echo "<$(whoami) $PWD $TERM $LANG $LC_ALL>"', wanted)
  await leave(terminal)
  terminal = await openTerminal(box, SMALL, { user: 'root', cwd: '/tmp', envs: { MINE: 'special', TERM: 'dumb' } })
  await terminal.types('echo "<$(whoami) $PWD $MINE $TERM>"', '<root /tmp special dumb>')
  await leave(terminal)
  await failing(AuthenticationError, 'nobody-here', () => openTerminal(box, SMALL, { user: 'nobody-here' }))
  await failing(InvalidArgumentError, '', () => openTerminal(box, SMALL, { cwd: '/no/such/place' }))
})

behaviour('terminals: control characters reach who runs in it', async (box) => {
  const terminal = await openTerminal(box, SMALL)
  const told = 'trap "echo caught-\\$((1+1)); kill \\$!; exit" INT; echo ready-$((1+1)); sleep 1000 & wait'
  const after = await terminal.types(`bash -c '${told}'`, 'ready-2')
  await box.pty.sendInput(terminal.pid, bytes('\x03'))
  await terminal.screen.until('caught-2', after)
  await leave(terminal)
})

behaviour('terminals: text in any script is echoed', async (box) => {
  const terminal = await openTerminal(box, SMALL)
  await terminal.types("printf '%s-%s\\n' Grüße 日本語", 'Grüße-日本語')
  await leave(terminal)
})

behaviour('terminals: a killed terminal is dead', async (box) => {
  const terminal = await openTerminal(box, SMALL)
  same(await box.pty.kill(terminal.pid), true)
  const error = await failing(CommandExitError, '', () => terminal.end)
  same([error.exitCode, error.error], [-1, 'signal: killed'])
  same(await box.pty.kill(terminal.pid), false)
  same(await box.pty.kill(box.nobody), false)
})

behaviour('terminals: a terminal that takes too long is killed', async (box) => {
  const terminal = await openTerminal(box, SMALL, { timeoutMs: SOON })
  await failing(TimeoutError, '', () => terminal.end)
})

behaviour('terminals: a terminal is found again', async (box) => {
  const first = await openTerminal(box, SMALL)
  await first.types('KEPT=as-it-was', 'KEPT')
  const second = await connectTerminal(box, first.pid)
  same(second.pid, first.pid)
  await second.types('echo still-$KEPT', 'still-as-it-was')
  await first.screen.until('still-as-it-was')
  await leave(second)
  same((await first.end).exitCode, 0)
  await failing(NotFoundError, String(box.nobody), () => connectTerminal(box, box.nobody))
})

behaviour('terminals: a terminal outlives who looks at it', async (box) => {
  const handle = await box.pty.create({ ...SMALL, onData: () => {} })
  await handle.disconnect()
  const again = await connectTerminal(box, handle.pid)
  await again.types('echo $((40+2))-again', '42-again')
  await leave(again)
})

behaviour('terminals: a terminal is listed as the shell it is', async (box) => {
  const terminal = await openTerminal(box, SMALL)
  const [{ cmd, args }] = (await box.commands.list()).filter(({ pid }) => pid === terminal.pid)
  same([cmd, args], ['/bin/bash', ['-i', '-l']])
  await leave(terminal)
})

behaviour('terminals: a terminal and a pipe are not mistaken', async (box) => {
  const piped = await start(box, 'cat', { stdin: true })
  await failing(SandboxError, '', () => box.pty.sendInput(piped.pid, bytes('lost')))
  await failing(SandboxError, '', () => box.pty.resize(piped.pid, SMALL))
  same(await piped.handle.kill(), true)
  const terminal = await openTerminal(box, SMALL)
  await failing(SandboxError, '', () => box.commands.sendStdin(terminal.pid, 'lost'))
  await leave(terminal)
})
