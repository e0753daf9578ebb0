// Lives through what users of the package e2b do in a sandbox, with a daemon on localhost:49983 (E2B_DEBUG=true).
//
// usage: driver.mjs <version> [word...], words choose behaviours by name. The package is looked for as usual: in
// node_modules beside this file or above it.

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

// each registers its behaviours
import './commands.mjs'
import './contents.mjs'
import './folders.mjs'
import './watches.mjs'
import './terminals.mjs'
import { prove, same } from './proof.mjs'
import { Box } from './shapes.mjs'

const [wanted, ...words] = process.argv.slice(2)
const entry = createRequire(import.meta.url).resolve('e2b')
same(JSON.parse(readFileSync(join(dirname(entry), '../package.json'))).version, wanted)
same(process.env.E2B_DEBUG, 'true')
const failed = await prove(await Box.open(), words)
console.log([`e2b ${wanted} from npm: ${failed.length} failed`, ...failed].join('\n  '))
process.exit(failed.length > 0 ? 1 : 0)
