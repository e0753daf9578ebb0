// Behaviours: what they are, how they are run, and the few words in which they say what they expect.

import { deepStrictEqual } from 'node:assert'
import { setTimeout as pause } from 'node:timers/promises'

// no behaviour needs it; one that hangs is reported, and the others still run
export const PATIENCE = 300_000
// long enough to start something on a busy machine, and short enough to wait for
export const SOON = 5_000
const behaviours = []

export function behaviour(name, run) {
  behaviours.push({ name, run })
}

export function same(found, wanted) {
  deepStrictEqual(found, wanted)
}

export function sure(holds, words) {
  if (!holds) throw new Error(words)
}

// What is done must throw `kind`, and say `words`. Gives what was thrown.
export async function failing(kind, words, work) {
  let error
  try {
    await work()
  } catch (thrown) {
    error = thrown
  }
  sure(error !== undefined, `${kind.name} expected, and nothing was thrown`)
  if (!(error instanceof kind)) throw error
  sure(`${error}`.includes(words), `'${words}' is not in '${error}'`)
  return error
}

// Waits until a probe holds, and gives what it gave.
export async function until(what, probe) {
  const giveUp = Date.now() + PATIENCE / 3
  for (;;) {
    const found = await probe()
    if (found) return found
    sure(Date.now() < giveUp, `waited in vain until ${what}`)
    await pause(20)
  }
}

export async function within(milliseconds, what, work) {
  const stop = new AbortController()
  const late = pause(milliseconds, undefined, { signal: stop.signal }).then(
    () => Promise.reject(new Error(`waited in vain for ${what}`)),
    () => {}
  )
  try {
    return await Promise.race([work, late])
  } finally {
    stop.abort()
  }
}

// Runs the behaviours whose names hold one of the words, if there are words. Gives the names of those that failed.
export async function prove(box, words) {
  const failed = []
  for (const { name, run } of behaviours) {
    if (words.length > 0 && !words.some((word) => name.includes(word))) continue
    const start = Date.now()
    try {
      await within(PATIENCE, 'its end', run(box))
      console.log(`ok       ${name} (${(Date.now() - start) / 1000} s)`)
    } catch (error) {
      failed.push(name)
      console.log(`FAILED   ${name}\n${error.stack}\n`)
    }
  }
  return failed
}
