# SPDX-License-Identifier: BSD-3-Clause
"""Makes live files (app/common/live_file.h) that no receiver wrote."""

import os
import struct

HEAD = '<8sQQ6I3Q2Q4QQ6QfI256s'
PACKETS_MAX = 4096  # FRAME_PACKETS_MAX
FRAME = '<QQQQqd11I3I'
ALIGN, DATA = 4096, 36864


def align(size):
    return -(-size // ALIGN) * ALIGN


class LiveFile:
    """A file of a full image; fields may be replaced before write()."""

    def __init__(self, rows=16, cols=64, geometry=b'', **fields):
        pixels = rows * cols
        slot = align(DATA + 4096 + 4 * pixels)
        first = align(struct.calcsize(HEAD) + 4 * PACKETS_MAX)
        maximum = first + 2 * slot
        total = maximum + align(4 * pixels)
        mask = total + align(8 * pixels)
        text = mask + align(pixels)
        self.text = geometry
        self.fields = {'magic': b'BRGLIVE1', 'size': text + align(len(geometry)), 'id': 1, 'rows': rows,
                       'cols': cols, 'packets': 1, 'packet_rows': rows, 'value': 0, 'nnz_cap': 8,
                       'row_ptr': 0, 'col': align(4 * (rows + 1)), 'values': align(4 * (rows + 1)) + 64,
                       'slot0': first, 'slot1': first + slot, 'maximum': maximum, 'sum': total,
                       'mask': mask, 'geometry': text, 'geometry_size': len(geometry),
                       'generation': 2, 'sequence': 1, 'frames': 1, 'sparse': 0, 'skipped': 0,
                       'active': 1, 'csr_threshold': 0.0, 'reserved': 0, 'run': b'made', **fields}
        self.frame = {'begin': 1, 'end': 1, 'frame': 7, 'bunch_id': 0, 'receive_time': 0, 'sum': 5.0,
                      'kind': 1, 'nnz': 0, 'strong_count': 1, 'saturated': 0, 'invalid': 0,
                      'verdict': 1, 'flags': 0, 'veto_version': 1, 'pedestal_version': 1,
                      'peaks': 0, 'nb_peaks': 0, 'reserved0': 0, 'reserved1': 0, 'reserved2': 0}

    def write(self, path):
        """Replace the file, as a receiver does."""
        f = self.fields
        with open(path + '.part', 'wb') as stream:
            stream.truncate(f['size'])
            stream.write(struct.pack(HEAD, *f.values()))
            for at, data in ((f['slot1'], struct.pack(FRAME, *self.frame.values())),
                             (f['geometry'], self.text)):
                if at + len(data) <= f['size']:
                    stream.seek(at)
                    stream.write(data)
        os.rename(path + '.part', path)
        return path
