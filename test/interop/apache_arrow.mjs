// SPDX-License-Identifier: BSD-3-Clause
// Apache Arrow for JS, of node_modules in the directory that is the first argument of the program.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

export const arrow = createRequire(resolve(process.argv[2], 'here.js'))('apache-arrow');
