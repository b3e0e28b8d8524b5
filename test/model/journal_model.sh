#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Lets spin check every state of journal.pml and journal_area.pml, and find the error that each of
# their mutations has.
#
#   journal_model.sh FOLDER_OF_THE_MODELS
set -eu
folder=$(cd "$1" && pwd)
model=$folder/journal.pml
. "$(dirname "$model")/spin.sh"

holds -DBATCHES=4
# these end early
export optimise=-O0
fails 'assertion violated (block' -DLATE
fails 'invalid end state' -DNO_SKIP
fails 'assertion violated ((committed-first)<=2)' -DNO_RECORDS

model=$folder/journal_area.pml
optimise=-O2
holds -DBATCHES=5
optimise=-O0
fails 'assertion violated (user' -DEARLY
fails 'assertion violated (user' -DCOUNT_FIRST
fails 'assertion violated' -DTWICE
fails 'invalid end state (' -DLOSE
