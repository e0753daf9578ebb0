// A sandbox, and processes and directories that are followed while they change.

import { Sandbox } from 'e2b'
import { sure, until, within } from './proof.mjs'

const NOBODY = 999999

export class Box {
  constructor(sandbox) {
    this.sandbox = sandbox
    this.commands = sandbox.commands
    this.files = sandbox.files
    this.pty = sandbox.pty
    this.nobody = NOBODY
  }

  static async open() {
    return new Box(await Sandbox.create())
  }

  // What a command prints, which must succeed.
  async out(command, options) {
    return (await this.commands.run(command, options)).stdout
  }

  // A new and empty directory of the default user.
  async folder(name) {
    const path = `/home/user/js-${name}`
    await this.files.remove(path)
    sure(await this.files.makeDir(path), `${path} was there after it had been removed`)
    return path
  }

  async isAlive(pid) {
    return (await this.out(`test -d /proc/${pid} && echo yes || echo no`, { user: 'root' })) === 'yes\n'
  }

  async isGone(pid) {
    return !(await this.isAlive(pid))
  }
}

// Output that has come so far, and its pieces as they came.
class Heard {
  text = ''
  pieces = []
  decoder = new TextDecoder()
  wake = () => {}

  take = (piece) => {
    this.pieces.push(piece)
    this.text += typeof piece === 'string' ? piece : this.decoder.decode(piece, { stream: true })
    this.wake()
  }

  // Waits for words; gives where they end.
  async until(words, after = 0) {
    for (;;) {
      const found = this.text.indexOf(words, after)
      if (found >= 0) return found + words.length
      const changed = new Promise((wake) => (this.wake = wake))
      await within(30_000, `'${words}', heard '${this.text.slice(after)}'`, changed)
    }
  }
}

class Followed {
  constructor(box) {
    this.box = box
    this.out = new Heard()
    this.err = new Heard()
    this.screen = new Heard()
    this.isDone = false
  }

  begin(handle) {
    this.handle = handle
    this.pid = handle.pid
    this.end = handle.wait()
    // an end that no behaviour asks about is no news
    this.end.catch(() => {}).finally(() => (this.isDone = true))
    return this
  }

  get callbacks() {
    return { onStdout: this.out.take, onStderr: this.err.take }
  }

  // Types a line into the terminal, and waits for an answer that comes after it.
  async types(line, answer) {
    const after = this.screen.text.length
    await this.box.pty.sendInput(this.pid, new TextEncoder().encode(`${line}\n`))
    return await this.screen.until(answer, after)
  }
}

export async function start(box, command, options = {}) {
  const followed = new Followed(box)
  return followed.begin(await box.commands.run(command, { background: true, ...followed.callbacks, ...options }))
}

export async function connect(box, pid) {
  const followed = new Followed(box)
  return followed.begin(await box.commands.connect(pid, followed.callbacks))
}

export async function openTerminal(box, size, options = {}) {
  const followed = new Followed(box)
  return followed.begin(await box.pty.create({ ...size, onData: followed.screen.take, ...options }))
}

export async function connectTerminal(box, pid) {
  const followed = new Followed(box)
  return followed.begin(await box.pty.connect(pid, { onData: followed.screen.take }))
}

export class Watch {
  events = []

  static async on(box, path, options) {
    const watch = new Watch()
    watch.handle = await box.files.watchDir(path, (event) => void watch.events.push(event), options)
    return watch
  }

  // Waits for an event and gives it.
  async until(name, type) {
    const found = () => this.events.find((event) => event.name === name && event.type === type)
    try {
      return await until(`${type} of '${name}' is told`, found)
    } catch (error) {
      throw new Error(`${error.message}, but ${JSON.stringify(this.events)}`)
    }
  }

  of(name) {
    return this.events.filter((event) => event.name === name).map((event) => event.type)
  }

  stop() {
    return this.handle.stop()
  }
}
