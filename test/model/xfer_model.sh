#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Lets spin check every state of xfer.pml, and find the error that each of its mutations has.
#
#   xfer_model.sh FOLDER_OF_THE_MODEL
set -eu
model=$(cd "$1" && pwd)/xfer.pml

. "$(dirname "$model")/spin.sh"

holds -DBATCHES=3 -DFAULTS=1 -DMOVES=1
holds -DBATCHES=2 -DFAULTS=2 -DMOVES=1
# the claim also holds if batches after a reassigned one are removed with it
holds -DBATCHES=2 -DFAULTS=2 -DMOVES=1 -DCUT_OFF
# an operator runs import or reconcile meanwhile, and is killed
holds -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DTOOLS=1

# these end early
export optimise=-O0
lost='assertion violated yes'
once='assertion violated (n==1)'
place='assertion violated (memory'
fails "$lost" -DFAULTS=1 -DACK_BEFORE_SYNC
fails "$once" -DFAULTS=1 -DRELEASE_WHEN_SENT
fails "$once" -DBATCHES=2 -DFAULTS=2 -DNO_REASSIGNED
fails "$once" -DBATCHES=2 -DFAULTS=2 -DMOVES=1 -DFORGET_REASSIGNED
fails "$once" -DBATCHES=2 -DFAULTS=2 -DMOVE_WHILE_CONNECTING
fails "$once" -DBATCHES=2 -DFAULTS=2 -DMOVES=1 -DCUT_OFF -DFOUND_IN_ANY_ORDER
fails "$lost" -DBATCHES=2 -DFAULTS=2 -DGRANT_BEFORE_SETTLED
fails "$place" -DBATCHES=2 -DFAULTS=1 -DMOVES=0 -DREUSE_AT_ONCE
fails "$place" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DOLD_KEYS
# spilled batches
fails "$lost" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DRELEASE_BEFORE_SPILLED
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DSPILL_WHILE_CONNECTING
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DADOPT_BLINDLY
# import
fails "$once" -DBATCHES=1 -DFAULTS=2 -DMOVES=1 -DTOOLS=1 -DPLACES=1 -DKEEP_DOUBTS
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DTOOLS=1 -DIMPORT_WHILE_SPILLING
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DTOOLS=1 -DREMOVE_BEFORE_SYNC
fails "$once" -DBATCHES=2 -DFAULTS=1 -DMOVES=1 -DTOOLS=1 -DCUT_OFF -DCUT_ALL_FILES
# reconcile
fails "$once" -DBATCHES=1 -DFAULTS=2 -DMOVES=1 -DTOOLS=1 -DPLACES=1 -DWITHOUT_RING
fails "$once" -DBATCHES=3 -DFAULTS=2 -DMOVES=1 -DTOOLS=1 -DCUT_BEFORE_COPY
