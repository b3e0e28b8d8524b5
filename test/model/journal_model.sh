#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Lets spin check every state of journal.pml, and find the error that each of its mutations has.
#
#   journal_model.sh FOLDER_OF_THE_MODEL
set -eu
model=$(cd "$1" && pwd)/journal.pml
. "$(dirname "$model")/spin.sh"

holds -DBATCHES=4
# these end early
export optimise=-O0
fails 'assertion violated (block' -DLATE
fails 'invalid end state' -DNO_SKIP
fails 'assertion violated ((committed-first)<=2)' -DNO_RECORDS
