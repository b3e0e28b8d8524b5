// SPDX-License-Identifier: BSD-3-Clause
// Loads Apache Arrow for JS from node_modules in the directory of the program's first argument.

import { createRequire } from 'node:module';
import { resolve } from 'node:path';

export const arrow = createRequire(resolve(process.argv[2], 'here.js'))('apache-arrow');
