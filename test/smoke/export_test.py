#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""braggline-export as its user runs it: the files of runs of the simulator, read by h5py, have the
run's pixels, peaks, geometry and columns; an export is interrupted and continued; damaged files.

usage: export_test.py BUILD-DIR [CASE]...
"""

import errno
import fcntl
import glob
import importlib.util
import os
import platform
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from cases import Skipped, case, run_cases, want
from export_runs import (COLS, EXPORT, FILTER, PEAKS, ROWS, SCAN, calibration_mask, export, h5py,
                         images, kept, numpy, receive, refuse, runs, same_as, sparse_images, table)

ORACLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../shared/oracles')


def refused(where, text, *arguments, status=1):
    """An export that fails with this message, and leaves no master file."""
    _, err = export('--output', f'{where}/refused', *arguments, status=status)
    want(re.search(text, err), 'no', text, 'in', err)
    want(not os.path.exists(f'{where}/refused/lyso_master.h5'), 'a master file was written')


@case
def pixels_and_peaks_equal_the_run(where):
    run = receive('image')
    frames = kept(run)
    want(len(frames) > 8, frames)
    export('--output', f'{where}/out', '--images-per-file', '4', run)
    same_as(run, f'{where}/out/lyso_master.h5', frames)
    with h5py.File(f'{where}/out/lyso_master.h5', 'r') as f:
        data = f['entry/data/data']
        want(data.attrs['_FillValue'] == data.fillvalue and
             data.attrs['_FillValue'].dtype == data.dtype, data.attrs['_FillValue'])
    names = sorted(os.listdir(f'{where}/out'))
    want(names == ['lyso.geom', *(f'lyso_data_{k:06d}.h5' for k in
                                  range(1, (len(frames) + 3) // 4 + 1)), 'lyso_master.h5'], names)
    with h5py.File(f'{where}/out/lyso_data_000002.h5', 'r') as f:
        data = f['entry/data/data']
        want(data.attrs['image_nr_low'] == 5 and data.attrs['image_nr_high'] == 8)
        want(data.chunks == (1, ROWS, COLS), data.chunks)
        plist = data.id.get_create_plist()
        want(plist.get_nfilters() == 1 and plist.get_filter(0)[:2] == (32008, 1), 'filter')
    # every file has superblock 0, which programs open without a repair
    for name in names:
        if name.endswith('.h5'):
            with open(f'{where}/out/{name}', 'rb') as stream:
                want(stream.read(9) == b'\x89HDF\r\n\x1a\n\0', name)
    # the master finds data files in its own directory, even if both are moved
    os.rename(f'{where}/out', f'{where}/moved')
    same_as(run, f'{where}/moved/lyso_master.h5', frames)


@case
def columns_equal_the_run(where):
    run = receive('image')
    rows = table(run)
    export('--output', where, run)
    with h5py.File(f'{where}/lyso_master.h5', 'r') as f:
        group = f['entry/frames']
        for name in ('bunch_id', 'detector_time', 'exposure', 'flags', 'strong_count', 'verdict',
                     'saturated', 'invalid', 'receive_time'):
            for i, frame in enumerate(group['frame']):
                want(group[name][i] == int(rows[frame][name]), name, frame)
        for i, frame in enumerate(group['frame']):
            want(f['entry/peaks/nPeaks'][i] == int(rows[frame]['peaks']))
        want(f['entry/definition'][()] == b'NXmx')
        want(re.fullmatch(rb'20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z', f['entry/start_time'][()]))


@case
def profiles_equal_the_run(where):
    run = receive('profiles', 'radial.bins=50', 'radial.unit=2theta')
    rows = table(run)
    export('--output', where, run)
    with h5py.File(f'{where}/lyso_master.h5', 'r') as f:
        group = f['entry/azint']
        want(group.attrs['NX_class'] == b'NXcollection', dict(group.attrs))
        centres = group['bin_to_two_theta']
        want(centres.shape == (50,) and centres.attrs['units'] == b'deg', centres)
        want((numpy.diff(centres[()]) > 0).all() and 0 < centres[0] < centres[-1] < 90)
        frames = f['entry/frames/frame'][()]
        want(len(frames) > 8 and group['image'].shape == (len(frames), 50), frames)
        for i, frame in enumerate(frames):
            total = numpy.array(rows[frame]['radial_sum'].split(), 'i8')
            count = numpy.array(rows[frame]['radial_count'].split(), 'u4')
            want((group['sum'][i] == total).all() and (group['count'][i] == count).all(), frame)
            want(count.sum() > 400000, frame)
            with numpy.errstate(invalid='ignore'):
                want(numpy.array_equal(group['image'][i], (total / count).astype('f4'),
                                       equal_nan=True), frame)
    export('--output', f'{where}/none', receive('image'))
    with h5py.File(f'{where}/none/lyso_master.h5', 'r') as f:
        want('azint' not in f['entry'])


@case
def geometry_equals_the_run(where):
    run = receive('image')
    export('--output', where, run)
    with open(f'{where}/lyso.geom', encoding='ascii') as stream:
        geom = dict(line.split(' = ', 1) for line in stream.read().splitlines() if ' = ' in line)
    subprocess.run([SCAN, run, '--geometry', f'{where}/scan.geom'], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with open(f'{where}/scan.geom', encoding='ascii') as stream:
        panels = [line for line in stream if '/' in line.split(' = ')[0]]
    for line in panels:
        key, value = line.rstrip('\n').split(' = ', 1)
        want(geom[key] == value, line, geom[key])
    with h5py.File(f'{where}/lyso_master.h5', 'r') as f:
        detector = f['entry/instrument/detector']
        want(detector['distance'][()] == 0.08633)
        want(abs(f['entry/instrument/beam/incident_wavelength'][()] - 12.398419843 / 12.4) < 1e-12)
        want(geom['mask0_data'][1:] in f and geom['peak_list'][1:] in f, geom)
        modules = [detector[n] for n in sorted(detector) if n.startswith('module_')]
        want(len(modules) == 8, len(modules))
        for m in modules:
            name = m['panel'][()].decode()
            want(list(m['data_origin']) == [int(geom[f'{name}/min_ss']), int(geom[f'{name}/min_fs'])])
            want(list(m['data_size']) == [256, 256])
            offset = m['module_offset'].attrs['offset']
            want(abs(offset[0] - float(geom[f'{name}/corner_x']) * 75e-6) < 1e-12)
            want(abs(offset[1] - float(geom[f'{name}/corner_y']) * 75e-6) < 1e-12)
            want(list(m['fast_pixel_direction'].attrs['vector']) == [1, 0, 0])
            want(list(m['slow_pixel_direction'].attrs['vector']) == [0, -1, 0])
            want(m['fast_pixel_direction'][0] == 75e-6)
            # the chain of axes ends at the sample
            at, steps = m['fast_pixel_direction'], 0
            while at.attrs['depends_on'] != b'.':
                at, steps = f[at.attrs['depends_on']], steps + 1
            want(steps == 2 and at.name.endswith('det_z') and at[0] == 0.08633)


@case
def a_geometry_of_nexus_is_read(where):
    run = receive('image')
    export('--output', where, run)
    export('--convert', f'{where}/again.geom', f'{where}/lyso_master.h5')

    def panels(path):
        with open(path, encoding='ascii') as stream:
            return dict(line.split(' = ', 1) for line in stream.read().splitlines() if ' = ' in line)

    def same(path, of):
        a, b = panels(path), panels(of)
        want(a.keys() - {'mask0_data'} == b.keys() - {'mask0_data'}, a.keys() ^ b.keys())
        for key in a:
            if key.endswith(('corner_x', 'corner_y', 'coffset', 'res')) or key == 'clen':
                want(abs(float(a[key].split()[0]) - float(b[key].split()[0])) < 1e-7, key, a[key], b[key])
            elif key.endswith(('/fs', '/ss')):
                x, y = ([float(n) for n in re.findall(r'[-+0-9.]+(?=[xyz])', t[key])] for t in (a, b))
                want(all(abs(i - j) < 1e-12 for i, j in zip(x, y)), key, a[key], b[key])
            elif key not in ('mask0_data', 'photon_energy'):
                want(a[key] == b[key], key, a[key], b[key])

    same(f'{where}/again.geom', f'{where}/lyso.geom')
    # other ways to say the same: millimetres, a rotation by 180 degrees and back, relative names
    with h5py.File(f'{where}/lyso_master.h5', 'r+') as f:
        axes = f['entry/instrument/detector/transformations']
        axes['det_z'][...] = 86.33
        axes['det_z'].attrs['units'] = 'mm'
        for name, angle, unit, after in (('turn', 180.0, 'deg', 'back'),
                                         ('back', -numpy.pi, 'rad', '.')):
            axes[name] = numpy.array([angle])
            axes[name].attrs.update({'units': unit, 'vector': (0., 0., 1.), 'depends_on': after,
                                     'transformation_type': 'rotation'})
        axes['det_z'].attrs['depends_on'] = 'turn'
    export('--convert', f'{where}/turned.geom', f'{where}/lyso_master.h5')
    same(f'{where}/turned.geom', f'{where}/lyso.geom')
    # a tilt by 30 degrees about y: z of a row grows against x
    with h5py.File(f'{where}/lyso_master.h5', 'r+') as f:
        axes = f['entry/instrument/detector/transformations']
        axes['turn'].attrs['vector'] = (0., 1., 0.)
        axes['turn'][...] = 30.0
        axes['back'][...] = 0.0
    export('--convert', f'{where}/tilted.geom', f'{where}/lyso_master.h5')
    with open(f'{where}/tilted.geom', encoding='ascii') as stream:
        fs = re.search(r'm0c0/fs = ([-+0-9.]+)x ([-+0-9.]+)y ([-+0-9.]+)z', stream.read())
    want(abs(float(fs[1]) - 0.75 ** 0.5) < 1e-9 and abs(float(fs[3]) + 0.5) < 1e-9, fs)
    # it is the geometry of an export
    export('--output', f'{where}/out', '--geometry', f'{where}/lyso_master.h5', run)
    def attribute(key, value):
        return lambda group, name: group[name].attrs.__setitem__(key, value)

    def replaced(value):
        def change(group, name):
            kept = dict(group[name].attrs)
            del group[name]
            group[name] = value
            group[name].attrs.update(kept)
        return change

    # what is wrong is named, with its path
    for path, change, text in (
            ('module_003/data_size', lambda d, n: d.pop(n), '/module_003/data_size: expected rows and'),
            ('module_003/data_size', replaced([256.5, 256.]), '/module_003/data_size: expected rows and'),
            ('module_003/data_origin', replaced([-1, 0]), '/module_003/data_origin: expected rows and'),
            ('module_003/data_origin', replaced([0, 0]), 'panel m0c3: has pixels of panel m0c0'),
            ('module_003/panel', replaced('m0c0'), '/module_003/panel: m0c0 is the name of two'),
            ('module_000/module_offset', lambda d, n: d[n].attrs.pop('vector'),
             '/module_000/module_offset: attribute vector is missing'),
            ('module_000/module_offset', attribute('offset', (0., 0.)), 'offset is not three finite'),
            ('module_000/module_offset', attribute('offset', (0., 0., numpy.nan)), 'offset is not three'),
            ('module_003/module_offset', attribute('offset', (0., 0., -0.08633)), 'sample is in its plane'),
            ('module_000/module_offset', attribute('offset', (0., 0., -0.08633)), 'its modules are 0 m'),
            ('module_000/module_offset', attribute('offset', (0., 9e9, 0.)), 'panel m0c0: corner_y = 1200000'),
            ('module_000/fast_pixel_direction', attribute('depends_on', '.'), 'm apart'),
            ('module_000/fast_pixel_direction', attribute('depends_on', 'x' * 300), 'is not text of'),
            ('transformations/det_z', replaced(-100.), '/entry/instrument/detector: its modules are -'),
            ('transformations/det_z', replaced([86.33, 90.]), 'det_z: its values change'),
            ('transformations/back', lambda d, n: d[n].attrs.__setitem__('depends_on', 'turn'),
             'its chain of axes has no end'),
            ('transformations/turn', lambda d, n: d.pop(n), 'turn: there is no such axis')):
        shutil.copy(f'{where}/lyso_master.h5', f'{where}/wrong.h5')
        with h5py.File(f'{where}/wrong.h5', 'r+') as f:
            group, name = path.split('/')
            change(f['entry/instrument/detector'][group], name)
        _, err = export('--convert', f'{where}/x.geom', f'{where}/wrong.h5', status=1)
        want(text in err and 'wrong.h5' in err, text, err)
    with open(f'{where}/wrong.h5', 'wb') as stream:
        stream.write(b'no HDF5')
    _, err = export('--convert', f'{where}/x.geom', f'{where}/wrong.h5', status=1)
    want('wrong.h5: HDF5' in err and not os.path.exists(f'{where}/x.geom'), err)


@case
def nexus_files_lead_to_no_other_file(where):
    """A link that cannot be opened may hide a module. A pipe at its end would stop the program."""
    export('--output', where, receive('image'))
    pipe = f'{where}/pipe.h5'
    os.mkfifo(pipe)

    def stored_outside(detector):
        del detector['module_000/data_size']
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_external(pipe.encode(), 0, 16)
        h5py.h5d.create(detector['module_000'].id, b'data_size', h5py.h5t.STD_I64LE,
                        h5py.h5s.create_simple((2,)), creation)

    def virtual(detector):
        del detector['module_000/data_size']
        layout = h5py.VirtualLayout(shape=(2,), dtype='i8')
        layout[:] = h5py.VirtualSource(pipe, 'x', shape=(2,))
        detector['module_000'].create_virtual_dataset('data_size', layout)

    def link(name, to):
        def change(detector):
            if name in detector:
                del detector[name]
            detector[name] = to
        return change

    outside = h5py.ExternalLink(pipe, '/x')
    for change, text in (
            (link('module_003', h5py.SoftLink('absent')), 'module_003: its link cannot be opened'),
            (link('module_003', h5py.SoftLink('module_003')), 'module_003: its link cannot be'),
            (link('module_003', outside), 'module_003: found a link to another file'),
            (link('transformations/det_z', outside), 'det_z: there is no such axis'),
            (link('module_003/data_size', outside), '/module_003/data_size: expected rows and'),
            (link('/entry/instrument/beam/incident_wavelength', outside),
             'incident_wavelength: there is no such dataset'),
            (stored_outside, '/module_000/data_size: expected rows and columns'),
            (virtual, '/module_000/data_size: expected rows and columns'),
            # writers link some fields of the detector to files of metadata
            (link('pixel_mask', outside), None)):
        shutil.copy(f'{where}/lyso_master.h5', f'{where}/linked.h5')
        with h5py.File(f'{where}/linked.h5', 'r+') as f:
            change(f['entry/instrument/detector'])
        _, err = export('--convert', f'{where}/x.geom', f'{where}/linked.h5', status=int(bool(text)))
        want(text in err if text else err == '', text, err)


@case
def what_hdf5_cannot_read_is_an_error(where):
    """Damage in which HDF5 may crash, loop, or ask for any memory ends a child process."""
    export('--output', where, receive('image'))
    with open(f'{where}/lyso_master.h5', 'rb') as stream:
        data = stream.read()
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    print(f'seed {seed}')
    refused_files = 0
    for _ in range(40):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 4, 64, 1000))):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 255, rng.randrange(256)))
        with open(f'{where}/damaged.h5', 'wb') as stream:
            stream.write(damaged[:rng.choice((len(data), rng.randrange(len(data))))])
        done = subprocess.run([EXPORT, '--convert', f'{where}/x.geom', f'{where}/damaged.h5'],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=100, check=False)
        want(done.returncode in (0, 1) and (done.returncode == 0) == (done.stderr == ''), seed, done)
        refused_files += done.returncode
    want(refused_files > 0, 'no damage was found')
    # a pipe is not waited for
    os.mkfifo(f'{where}/pipe.h5')
    _, err = export('--convert', f'{where}/x.geom', f'{where}/pipe.h5', status=1)
    want('it is not a regular file' in err, err)
    # data files of this name
    os.mkdir(f'{where}/again')
    with open(f'{where}/lyso_data_000001.h5', 'rb') as stream:
        data = stream.read()
    for _ in range(8):
        damaged = bytearray(data)
        for _ in range(rng.choice((4, 1000))):
            damaged[rng.randrange(8192)] = rng.randrange(256)
        with open(f'{where}/again/lyso_data_000001.h5', 'wb') as stream:
            stream.write(damaged)
        done = subprocess.run([EXPORT, '--output', f'{where}/again', runs['image']],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=100, check=False)
        want(done.returncode in (0, 1), seed, done)


@case
def units_of_nexus_are_known_words(where):
    """Each length has its own unit. One that is not known, or no text, is not taken as another."""
    export('--output', where, receive('image'))
    wavelength, det_z = 'beam/incident_wavelength', 'detector/transformations/det_z'

    def unit(name, text, **attributes):
        return lambda f: f[name].attrs.update({'units': text, **attributes})

    def drop(name, attribute):
        return lambda f: f[name].attrs.pop(attribute)

    def at_detector(text):
        """The axes begin at the detector, and `distance` has this unit."""
        def change(f):
            f[det_z][...] = 0
            if text is None:
                del f['detector/distance'].attrs['units']
            else:
                f['detector/distance'].attrs['units'] = text
        return change

    def turned(z, offset_units):
        """The movement along the beam is the offset of a rotation."""
        def change(f):
            f[det_z][...] = 0
            attributes = f[det_z].attrs
            attributes.update({'transformation_type': 'rotation', 'units': 'deg', 'offset': (0., 0., z)})
            attributes.pop('offset_units', None)
            attributes.update({'offset_units': offset_units} if offset_units else {})
        return change

    def directions(unit, offset=(1e-3, 0., 0.)):
        """An offset of both directions of a module."""
        def change(f):
            for name in ('fast', 'slow'):
                attributes = f[f'detector/module_003/{name}_pixel_direction'].attrs
                attributes.update({'offset': offset, **({'offset_units': unit} if unit else {})})
        return change

    offset, fast = 'detector/module_003/module_offset', 'detector/module_003/fast_pixel_direction'

    def value(number, text='angstrom'):
        def change(f):
            f[wavelength][...] = number
            f[wavelength].attrs['units'] = text
        return change

    for change, text in (
            (unit(wavelength, 'angle'), "units is 'angle', expected m, cm, mm, um, nm or angstrom"),
            (unit(wavelength, 7), 'incident_wavelength: attribute units is not text'),
            (drop(wavelength, 'units'), 'incident_wavelength: attribute units is missing'),
            (unit(det_z, 'degenerate', transformation_type='rotation'), "units is 'degenerate'"),
            (unit(det_z, 'radius', transformation_type='rotation'), "units is 'radius'"),
            (unit(det_z, 'M'), "det_z: attribute units is 'M', expected m, cm"),
            (unit(det_z, 'm' + ' ' * 300), 'det_z: attribute units is not text of at most 255 bytes'),
            (turned(0.08633, None), 'det_z: attribute offset_units is missing'),
            (turned(86.33, 'mm'), None),
            (unit(offset, 'm', offset_units=7), '/module_offset: attribute offset_units is not text'),
            (unit(offset, 'm', offset_units=(1, 2)), 'attribute offset_units is not text'),
            (unit(offset, 'm', offset_units='furlong'), "attribute offset_units is 'furlong'"),
            (unit(fast, 7), 'fast_pixel_direction: attribute units is not text'),
            (directions(7), 'fast_pixel_direction: attribute offset_units is not text'),
            (directions('furlong'), "fast_pixel_direction: attribute offset_units is 'furlong'"),
            (at_detector(7), '/entry/instrument/detector/distance: attribute units is not text'),
            (at_detector('furlong'), "distance: attribute units is 'furlong'"),
            (at_detector(None), 'distance: attribute units is missing'),
            (at_detector('m'), None),
            (at_detector('Meters'), None),
            (value(1e-320), 'incident_wavelength: the energy is inf eV'),
            (value(1e300), 'incident_wavelength: the energy is 1.2'),
            (value(1e307, 'm'), 'incident_wavelength: the energy is 0 eV'),
            (value(1.2, 'Angstroms'), None),
            (value(0.12, 'nm'), None)):
        shutil.copy(f'{where}/lyso_master.h5', f'{where}/units.h5')
        with h5py.File(f'{where}/units.h5', 'r+') as f:
            change(f['entry/instrument'])
        _, err = export('--convert', f'{where}/x.geom', f'{where}/units.h5', status=int(bool(text)))
        want(text in err if text else err == '', text, err)

    def corner():
        with open(f'{where}/x.geom', encoding='ascii') as stream:
            return float(re.search(r'm0c3/corner_x = (.*)', stream.read())[1])

    # a unit of the offset of a direction counts
    moved = []
    for change in (directions('m', (0., 0., 0.)), directions(None), directions('mm', (1., 0., 0.))):
        shutil.copy(f'{where}/lyso_master.h5', f'{where}/units.h5')
        with h5py.File(f'{where}/units.h5', 'r+') as f:
            change(f['entry/instrument'])
        export('--convert', f'{where}/x.geom', f'{where}/units.h5')
        moved.append(corner())
    want(all(abs(m - moved[0] - 1e-3 / 75e-6) < 1e-6 for m in moved[1:]), moved)


@case
def one_panel_has_a_poni_file_and_a_mask(where):
    run = receive('image')
    with open(f'{where}/one.geom', 'w', encoding='ascii') as stream:
        stream.write('photon_energy = 12400 eV\nclen = 0.1 m\nres = 13333.333333333334\n'
                     'adu_per_photon = 1\np/min_fs = 0\np/max_fs = 1023\np/min_ss = 0\n'
                     'p/max_ss = 511\np/corner_x = -500.5\np/corner_y = 250\np/fs = +1.0x\n'
                     'p/ss = -1.0y\nbad/min_fs = 3\nbad/max_fs = 4\nbad/min_ss = 7\n'
                     'bad/max_ss = 9\nbad/panel = p\n')
    export('--output', f'{where}/out', '--geometry', f'{where}/one.geom', run)
    with open(f'{where}/out/lyso.poni', encoding='ascii') as stream:
        poni = dict(line.rstrip('\n').split(': ', 1) for line in stream if ': ' in line)
    want(abs(float(poni['Poni1']) - 250 * 75e-6) < 1e-9, poni)
    want(abs(float(poni['Poni2']) - 500.5 * 75e-6) < 1e-9, poni)
    with h5py.File(f'{where}/out/lyso_master.h5', 'r') as f:
        detector = f['entry/instrument/detector']
        mask = detector['pixel_mask'][()]
        dead = calibration_mask()
        bad = numpy.zeros((ROWS, COLS), bool)
        bad[7:10, 3:5] = True
        want((mask == 256 * bad + 2 * dead).all() and dead.any(), 'mask')
        # DIALS reads this mask, so the images are the run's
        made = images(f'{run}/lyso_images.arrow')
        if os.path.exists(FILTER):
            for i, frame in enumerate(f['entry/frames/frame']):
                want((f['entry/data/data'][i] == made[frame][0]).all(), frame)
        want(detector['distance'][()] == 0.1 and detector['beam_center_x'][()] == 500.5)
        want(detector['beam_center_y'][()] == 250)
    # with chips, a PONI file would be wrong
    export('--output', f'{where}/out', run)
    want(not os.path.exists(f'{where}/out/lyso.poni'))


@case
def a_longer_export_of_this_name_is_reported(where):
    run = receive('image')
    frames = kept(run)
    export('--output', where, '--images-per-file', '4', run)
    with open(f'{where}/lyso_data_1.h5', 'wb') as other:
        other.write(b'of another program')
    command = ['--output', where, '--frames', f'{frames[0]}-{frames[3]}']
    before = snapshot(where)
    _, err = export(*command, '--images-per-file', '4', run, status=1)
    want(re.search(r'lyso_data_00000[2-9]\.h5: is of a longer export.*--overwrite', err), err)
    want(snapshot(where) == before, 'files changed')
    export(*command, '--images-per-file', '4', '--overwrite', run)
    names = sorted(n for n in os.listdir(where) if 'data' in n)
    want(names == ['lyso_data_000001.h5', 'lyso_data_1.h5'], names)
    same_as(run, f'{where}/lyso_master.h5', frames[:4])


@case
def single_files_of_other_runs_stay(where):
    """Of cxi and sparse, as of nxmx: of a part of the run, and of another run of this name that has
    the same frames."""
    run, sparse = receive('image'), receive('csr', 'output.format=csr')
    part = ['--frames', f'{kept(run)[0]}-{kept(run)[0]}']
    before = None
    for form, name, words in (('cxi', 'lyso.cxi', [run]), ('sparse', 'lyso_sparse.h5', [sparse]),
                              ('cxi', 'lyso.cxi', [*part, run]),
                              ('sparse', 'lyso_sparse.h5', [*part, sparse]),
                              ('cxi', 'lyso.cxi', [receive('again')])):
        command = ['--format', form, '--output', where, *words]
        if not os.path.exists(f'{where}/{name}'):
            export(*command)
            export(*command)
            before = snapshot(where)
            continue
        _, err = export(*command, status=1)
        said = 'more or fewer images of this run' if part[0] in words else 'other images'
        want(f'{name}: exists with {said}' in err and '--overwrite' in err, err)
        want(snapshot(where) == before, 'files changed')
    export('--format', 'cxi', '--output', where, '--overwrite', run)


@case
def masked_pixels_are_marked(where):
    receive('image')  # the capture has the maps
    dead = calibration_mask()
    for name, settings in ('image', ()), ('raw', ('output.format=raw',)):
        export('--output', f'{where}/{name}', receive(name, *settings))
        with h5py.File(f'{where}/{name}/lyso_master.h5', 'r') as f:
            want((f['entry/instrument/detector/pixel_mask_1'][()] == 2 * dead).all(), name)
    # as on a store, which has no calibration file
    run = f'{where}/stored'
    shutil.copytree(receive('image'), run)
    os.rename(f'{run}/lyso_calibration.bin', f'{where}/maps')
    _, err = export('--output', f'{where}/out', run)
    want('lyso_calibration.bin is not beside' in err and '--calibration' in err, err)
    with h5py.File(f'{where}/out/lyso_master.h5', 'r') as f:
        want(not f['entry/instrument/detector/pixel_mask_1'][()].any())
    export('--output', f'{where}/out', '--calibration', f'{where}/maps', run)
    with h5py.File(f'{where}/out/lyso_master.h5', 'r') as f:
        want((f['entry/instrument/detector/pixel_mask_1'][()] == 2 * dead).all())
    with open(f'{where}/maps', 'r+b') as maps:
        maps.seek(3000000)
        maps.write(b'x')
    refused(where, r'maps: is damaged, or the calibration of another run.*--calibration',
            '--calibration', f'{where}/maps', run)
    refused(where, 'nothing: No such file', '--calibration', f'{where}/nothing', run)
    refused(where, 'no calibration file', '--calibration', f'{run}/lyso_ledger.ini', run)


@case
def dials_gets_regions_of_chips_in_the_images(where):
    run = receive('image')
    subprocess.run([SCAN, run, '--geometry', f'{where}/a.geom'], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with open(f'{where}/a.geom', 'a', encoding='ascii') as stream:
        stream.write('bad/min_fs = 10\nbad/max_fs = 99\nbad/min_ss = 0\nbad/max_ss = 200\n'
                     'bad/panel = m0c0\n')
    made = images(f'{run}/lyso_images.arrow')
    for threads in '1', '3':
        export('--output', f'{where}/{threads}', '--geometry', f'{where}/a.geom', '--threads',
               threads, run)
        if not os.path.exists(FILTER):
            raise Skipped('h5py has no filter 32008: install bitshuffle')
        with h5py.File(f'{where}/{threads}/lyso_master.h5', 'r') as f:
            for i, frame in enumerate(f['entry/frames/frame']):
                pixels = f['entry/data/data'][i]
                want((pixels[:201, 10:100] == -32768).all(), 'region of frame', frame)
                pixels[:201, 10:100] = made[frame][0][:201, 10:100]
                want((pixels == made[frame][0]).all(), 'other pixels of frame', frame)


@case
def a_cxi_file_has_the_same_images_and_peaks(where):
    run = receive('image')
    made, frames = images(f'{run}/lyso_images.arrow'), kept(run)
    export('--format', 'cxi', '--output', where, run)
    want(sorted(os.listdir(where)) == ['lyso.cxi', 'lyso_cxi.geom'], os.listdir(where))
    with h5py.File(f'{where}/lyso.cxi', 'r') as f:
        want(f['cxi_version'][()] == 160 and f['entry_1/data_1/data'].dtype == '<i2')
        want((f['LCLS/photon_energy_eV'][()] == [12400] * len(frames)).all())
        want(abs(f['entry_1/instrument_1/source_1/energy'][()] / 1.98670e-15 - 1) < 1e-4)
        want((f['entry_1/data_1/mask'][()] == 8 * calibration_mask()).all())
        want(f['entry_1/instrument_1/detector_1/data'] == f['entry_1/data_1/data'])
        peaks = f['entry_1/result_1']
        want(list(f['entry_1/frames/frame']) == frames)
        for i, frame in enumerate(frames):
            pixels, lists = made[frame]
            if os.path.exists(FILTER):
                want((f['entry_1/data_1/data'][i] == pixels).all(), frame)
            for name, (number, _) in PEAKS.items():
                want((peaks[name][i][:peaks['nPeaks'][i]] == lists[number]).all(), name, frame)
    refused(where, r'images are CSR.*--format sparse', '--format', 'cxi',
            receive('csr', 'output.format=csr'))
    want(not os.path.exists(f'{where}/refused/lyso.cxi'))


@case
def frames_and_verdicts_are_selected(where):
    run = receive('image')
    frames = kept(run)
    export('--output', f'{where}/a', '--frames', f'{frames[2]}-{frames[5]}', run)
    same_as(run, f'{where}/a/lyso_master.h5', frames[2:6])
    export('--output', f'{where}/b', '--verdict', 'hit', f'{run}/lyso_images.arrow')
    same_as(run, f'{where}/b/lyso_master.h5', kept(run, '1'))
    refused(where, r'no kept frame.*--verdict.*\[veto\] dry_run = yes', '--verdict', 'dry_run', run)
    for wrong in (('--frames', '7-3'), ('--frames', 'x'), ('--frames', '-3'), ('--verdict', 'lost'),
                  ('--images-per-file', '0'), ('--colour',), ()):
        refused(where, 'expected|unknown', *wrong, *([run] if wrong else []), status=2)


def snapshot(where):
    return {name: (os.stat(f'{where}/{name}').st_ino, os.stat(f'{where}/{name}').st_mtime_ns)
            for name in os.listdir(where)}


@case
def an_export_is_continued(where):
    run = receive('image')
    command = ['--output', f'{where}/out', '--images-per-file', '3', run]
    export(*command)
    before = snapshot(f'{where}/out')
    os.unlink(f'{where}/out/lyso_data_000002.h5')
    with open(f'{where}/out/lyso_data_000003.h5.part', 'wb') as stream:
        stream.write(b'left by a killed export')
    out, _ = export(*command)
    after = snapshot(f'{where}/out')
    changed = {name for name in after if after[name] != before.get(name)}
    want({'lyso_data_000002.h5', 'lyso_master.h5'} <= changed, changed)
    want(not [n for n in changed if n.startswith('lyso_data') and '02' not in n and
              not n.endswith('.part')], changed)
    want('data files were complete' in out, out)
    same_as(run, f'{where}/out/lyso_master.h5', kept(run))
    # other images are not replaced without a word
    first = int(kept(run)[0]) + 1
    _, err = export('--frames', f'{first}-', *command, status=1)
    want('other images of this run' in err and '--overwrite' in err, err)
    same_as(run, f'{where}/out/lyso_master.h5', kept(run))
    export('--overwrite', '--frames', f'{first}-', *command)
    same_as(run, f'{where}/out/lyso_master.h5', kept(run)[1:])
    with open(f'{where}/out/lyso_data_000001.h5', 'wb') as stream:
        stream.write(b'no HDF5')
    _, err = export('--frames', f'{first}-', *command, status=1)
    want('no data file of braggline-export' in err, err)


def parts(directory):
    return {name for name in (os.listdir(directory) if os.path.exists(directory) else [])
            if name.endswith('.part')}


@case
def a_killed_export_leaves_complete_files(where):
    run = receive('image')
    frames = kept(run)
    out, seed = f'{where}/out', random.randrange(1 << 32)
    rng = random.Random(seed)
    print(f'seed {seed}')
    begin = time.monotonic()
    export('--output', f'{where}/timed', '--images-per-file', '1', run)
    took = time.monotonic() - begin
    killed = 0
    for _ in range(12):
        sent = rng.choice((signal.SIGKILL, signal.SIGINT, signal.SIGTERM))
        if rng.random() < 0.7:
            shutil.rmtree(out, ignore_errors=True)
        with subprocess.Popen([EXPORT, '--output', out, '--images-per-file', '1', run],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as process:
            time.sleep(rng.random() * took)
            process.send_signal(sent)
            err = process.stderr.read()
        if process.returncode in (0, 130):
            want((process.returncode == 0) == ('interrupted; the same command continues' not in err), err)
            # those that an export left which was killed are removed, too
            want(not parts(out), os.listdir(out))
        killed += process.returncode != 0
        for name in os.listdir(out) if os.path.exists(out) else []:
            if name.endswith('.h5'):
                with h5py.File(f'{out}/{name}', 'r') as f:
                    f['entry/data/data'][0]
                    want('master' not in name or len(f['entry/data/data']) == len(frames))
    export('--output', out, '--images-per-file', '1', run)
    want(not parts(out), os.listdir(out))
    same_as(run, f'{out}/lyso_master.h5', frames)
    print(f'{killed} of 12 exports ended early')


@case
def parts_of_killed_exports_are_removed(where):
    """Only those of the same run and format, and only with the lock."""
    run = receive('image')
    left = ['lyso_data_000099.h5.part', 'lyso_data_1000000.h5.part', 'lyso_master.h5.part']
    others = ['lyso_data_00001.h5.part', 'lyso_data_000001.h5.part.part', 'lyso_data_.h5.part',
              'lyso_data_000002.cxi.part', 'lyso2_data_000001.h5.part', 'lys_data_000001.h5.part',
              'lyso_lyso_master.h5.part', 'lyso_images.arrow.part']
    formats = {'nxmx': left, 'cxi': ['lyso.cxi.part'],
               'sparse': ['lyso_sparse.h5.part', 'lyso_sparse_000007.h5.part']}
    names = {*others, *(name for some in formats.values() for name in some)}
    for name in names:
        with open(f'{where}/{name}', 'wb'):
            pass
    lock = f'{where}/.lyso.export.lock'
    with open(lock, 'wb') as stream:
        fcntl.fcntl(stream, fcntl.F_OFD_SETLK, struct.pack('hhqqi4x', fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        export('--output', where, run, status=1)
    want(parts(where) == names, parts(where))
    for name, source in ('nxmx', run), ('cxi', run), ('sparse', receive('csr', 'output.format=csr')):
        export('--output', where, '--format', name, source)
        names -= set(formats[name])
        want(parts(where) == names, name, parts(where))
    # a folder is not removed, and is no reason to stop
    os.mkdir(f'{where}/{left[0]}')
    _, err = export('--output', where, run)
    want(f'warning: {where}/{left[0]}: cannot be removed' in err, err)


@case
def two_exports_do_not_write_the_same_files(where):
    run, name = receive('image'), f'{where}/.lyso.export.lock'
    with open(name, 'wb') as stream:
        lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(stream, fcntl.F_OFD_SETLK, lock)
        _, err = export('--output', where, run, status=1)
        want('another braggline-export writes the files of run lyso; wait for its end' in err, err)
        want(os.listdir(where) == ['.lyso.export.lock'], os.listdir(where))
    # the lock of a process that was killed has ended
    export('--output', where, run)
    want(not os.path.exists(name), os.listdir(where))
    processes = [subprocess.Popen([EXPORT, '--output', f'{where}/both', run], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                 for _ in range(4)]
    errors = [p.communicate(timeout=60)[1] for p in processes]
    want(all(p.returncode == 0 or 'another braggline-export' in e for p, e in zip(processes, errors)),
         errors)
    same_as(run, f'{where}/both/lyso_master.h5', kept(run))


@case
def output_that_nobody_reads_is_an_error(where):
    run = receive('image')
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([EXPORT, '--output', where, run], stdin=subprocess.DEVNULL, stdout=write,
                          stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write)
    want(done.returncode == 1, done.returncode, done.stderr)
    want(done.stderr == 'braggline-export: cannot write to standard output\n', done.stderr)
    want('.lyso.export.lock' not in os.listdir(where), os.listdir(where))
    same_as(run, f'{where}/lyso_master.h5', kept(run))


@case
def a_file_system_without_locks_is_a_warning(where):
    if platform.machine() != 'x86_64':
        raise Skipped('the filter of system calls is for x86-64')
    run = receive('image')
    for error in errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP:
        out = f'{where}/{error}'
        done = subprocess.run([EXPORT, '--output', out, run], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False,
                              preexec_fn=refuse(error, 72, fcntl.F_OFD_SETLK))
        want(done.returncode == 0, done.stderr)
        want(done.stderr.count('the file system has no locks; continuing without') == 1, done.stderr)
        want(not os.path.exists(f'{out}/.lyso.export.lock'), os.listdir(out))
        same_as(run, f'{out}/lyso_master.h5', kept(run))


@case
def a_full_disk_is_reported(where):
    csr = receive('csr', 'output.format=csr')

    def limit(size):
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    for size in 1000, 20000, 100000, 150000:
        for n, arguments in enumerate((['--images-per-file', '100', receive('image')],
                                       ['--format', 'sparse', csr])):
            # Python ignores SIGXFSZ, so does the program: writes fail as on a full disk
            done = subprocess.run([EXPORT, '--output', f'{where}/{size}-{n}', *arguments],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=60, check=False,
                                  restore_signals=False, preexec_fn=limit(size))
            want(done.returncode == 1, size, done.returncode, done.stderr)
            want(re.search(r'\.h5(\.part)?: .*File too large$', done.stderr, re.M), done.stderr)
            want(os.listdir(f'{where}/{size}-{n}') == [], os.listdir(f'{where}/{size}-{n}'))


@case
def parts_of_stores_are_one_run(where):
    run = receive('image')
    parts = receive('parts', 'output.roll_frames=1024')
    want(os.path.exists(f'{parts}/lyso_000001_frames.arrow'), os.listdir(parts))
    for table_name in 'frames', 'images':
        os.makedirs(f'{where}/{table_name}', exist_ok=True)
        shutil.copy(f'{parts}/lyso_000001_{table_name}.arrow', f'{where}/frames')
    # a copy of a batch is exported once
    shutil.copytree(f'{where}/frames', f'{where}/copy')
    export('--output', f'{where}/out', f'{where}/frames', f'{where}/copy')
    same_as(run, f'{where}/out/lyso_master.h5', kept(run))
    # a store that is not named: its frames are missing
    other = receive('other', 'run.name=other')
    refused(where, 'name the files of one run', run, other)


@case
def different_runs_of_one_name_are_reported(where):
    """Their frame numbers repeat, in an export and in a query."""
    first, second = receive('image'), receive('again')
    text = (f'{first}/lyso_frames.arrow and {second}/lyso_frames.arrow may be different runs of the same '
            'name: they are of different starts of the receiver, and both have frame 1; give the '
            'directories of one run')
    error = export('--output', f'{where}/out', first, second)[1]
    want(f'braggline-export: warning: {text}\n' in error, error)
    error = export('--output', f'{where}/one', first)[1]
    want('different runs' not in error, error)
    library = glob.glob(f'{os.path.dirname(__file__)}/../../.deps/npm/node_modules/@duckdb/*/libduckdb.so')
    if library:
        done = subprocess.run([SCAN, '--sql', 'SELECT count(*) FROM lyso.frames', first, second], text=True,
                              env={**os.environ, 'BRAGGLINE_DUCKDB': library[0]}, check=True,
                              capture_output=True)
        want(done.stderr == f'braggline-scan: {text}\n', done.stderr)


@case
def damage_is_reported(where):
    run = receive('image')
    small = receive('small', 'output.images_interval=2')
    for name in os.listdir(run):
        shutil.copy(f'{run}/{name}', where)
    path = f'{where}/lyso_images.arrow'
    with open(path, 'r+b') as stream:
        stream.seek(200000)
        byte = stream.read(1)[0]
        stream.seek(200000)
        stream.write(bytes([byte ^ 1]))
    _, err = export('--output', f'{where}/none', where, status=1)
    want('1 damaged batch is left out' in err, err)
    # two of the batches of a file, which threads check
    os.mkdir(f'{where}/two')
    for table_name in 'images', 'frames':
        shutil.copy(f'{small}/lyso_{table_name}.arrow', f'{where}/two')
    with open(f'{where}/two/lyso_images.arrow', 'r+b') as stream:
        size = os.path.getsize(stream.name)
        for at in size // 4, 3 * size // 4:
            stream.seek(at)
            byte = stream.read(1)[0]
            stream.seek(at)
            stream.write(bytes([byte ^ 1]))
    _, err = export('--output', f'{where}/none', f'{where}/two', status=1)
    want('2 damaged batches are left out' in err, err)
    size = os.path.getsize(path)
    for left in (size // 2, 9000, 4096, 100, 0):
        os.truncate(path, left)
        _, err = export('--output', f'{where}/none', where, status=1)
        want('lyso_images.arrow' in err and '--recover' not in err, left, err)
        want(left != size // 2 or 'copy it again from its origin' in err, left, err)
    os.unlink(path)
    refused(where, r'lyso_images.arrow: not found[^$]*kept frames have no image', where)
    with open(path, 'wb') as stream:
        stream.write(random.Random(1).randbytes(100000))
    refused(where, 'lyso_images.arrow', where)
    refused(where, 'No such file', f'{where}/nothing')
    # only files in progress can be recovered
    shutil.copy(f'{run}/lyso_images.arrow', f'{path}.part')
    os.unlink(path)
    os.truncate(f'{path}.part', size // 2)
    _, err = export('--output', f'{where}/none', where, status=1)
    want('--recover completes the files' in err, err)


@case
def what_cannot_be_exported_is_reported(where):
    refused(where, r'images are CSR.*--format sparse', receive('csr', 'output.format=csr'))
    flat = receive('flat', geometry=False)
    refused(where, r'no geometry.*--geometry FILE', flat)
    # with a geometry, and without peaks
    subprocess.run([SCAN, receive('image'), '--geometry', f'{where}/a.geom'], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    export('--output', f'{where}/flat', '--geometry', f'{where}/a.geom', flat)
    with h5py.File(f'{where}/flat/lyso_master.h5', 'r') as f:
        want('peaks' not in f['entry'] and 'module_007' in f['entry/instrument/detector'])
    with open(f'{where}/flat/lyso.geom', encoding='ascii') as stream:
        want('peak_list' not in stream.read())
    refused(where, r'a.txt: the name of a geometry', '--geometry', f'{where}/a.txt', flat)
    # no file gets a name that is cut off
    long = where + (4005 - len(where)) // 200 * f'/{"x" * 199}'
    long += '/' + (4004 - len(long)) * 'y'
    os.makedirs(long)
    _, err = export('--output', long, flat, '--geometry', f'{where}/a.geom', status=1)
    want(err.endswith(': the name is too long\n'), err)
    # a directory that cannot be made, and one that others can write to
    with open(f'{where}/file', 'wb'):
        pass
    _, err = export('--output', f'{where}/file/x', flat, '--geometry', f'{where}/a.geom', status=1)
    want(f'{where}/file' in err, err)


def oracle(name):
    path = os.path.join(ORACLES, name)
    if not os.path.exists(path):
        raise Skipped(f'no {os.path.relpath(path)}')
    return path


@case
def sparse_frames_equal_the_run(where):
    for name, kind in ('csr', 'i2'), ('csr_float', 'f4'):
        run = receive(name, 'output.format=csr',
                      f'output.value={"int16" if kind == "i2" else "float32"}')
        frames = kept(run)
        export('--format', 'sparse', '--output', f'{where}/{name}', run)
        made = sparse_images(f'{run}/lyso_images.arrow', kind)
        with h5py.File(f'{where}/{name}/lyso_sparse.h5', 'r') as f:
            entry = f[f.attrs['default']]
            group = entry[entry.attrs['default']]
            ptr = group['frame_ptr'][()]
            want(len(ptr) == len(frames) + 1 and list(entry['frames/frame']) == frames)
            for i, frame in enumerate(frames):
                at = slice(ptr[i], ptr[i + 1])
                want((group['index'][at] == made[frame][0]).all(), name, frame)
                want((group['intensity'][at] == made[frame][1]).all(), name, frame)
            want(ptr[-1] == len(group['index']) and group['intensity'].dtype == f'<{kind}')
            want((numpy.isnan(group['mask'][()]) == calibration_mask()).all(), 'mask')
            corner = numpy.hypot(514.5, 256.5)
            want(abs(group['mask'][0, 0] - corner) < 1e-3, group['mask'][0, 0], corner)
            want('nPeaks' in entry['peaks'])
    refused(where, 'no CSR image', '--format', 'sparse', receive('raw', 'output.format=raw'))
    # a region that the geometry does not use is masked
    subprocess.run([SCAN, run, '--geometry', f'{where}/a.geom'], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with open(f'{where}/a.geom', 'a', encoding='ascii') as stream:
        stream.write('bad/min_fs = 0\nbad/max_fs = 99\nbad/min_ss = 0\nbad/max_ss = 255\n'
                     'bad/panel = m0c0\n')
    export('--format', 'sparse', '--output', f'{where}/bad', '--geometry', f'{where}/a.geom', run)
    with h5py.File(f'{where}/bad/lyso_sparse.h5', 'r') as f:
        group = f['entry_0000/sparse_frames']
        x, y = group['index'][()] % COLS, group['index'][()] // COLS
        want(not ((x < 100) & (y < 256)).any() and 0 < len(x) < ptr[-1])
        want(numpy.isnan(group['mask'][:256, :100]).all())
        want(numpy.isnan(group['mask']).sum() == 25600 + calibration_mask()[:, 100:].sum() +
             calibration_mask()[256:, :100].sum())


@case
def fabio_rebuilds_sparse_frames(where):
    check = oracle('pyfai-sparse-open.py')
    if importlib.util.find_spec('fabio') is None:
        raise Skipped('no module fabio: install python3-fabio')
    export('--format', 'sparse', '--output', where, receive('csr', 'output.format=csr'))
    done = subprocess.run(['/usr/bin/python3', check, f'{where}/lyso_sparse.h5'],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=60,
                          check=False)
    want(done.returncode == 0 and done.stdout.endswith(': ok\n'), done.stdout)


@case
def chunks_are_copied(where):
    """Compressed and plain images, as in files of older versions, give the same chunks."""
    made = {}
    for name, settings in ('image', ()), ('plain', ('output.compress=no',)):
        run = receive(name, *settings)
        export('--output', f'{where}/{name}', run)
        same_as(run, f'{where}/{name}/lyso_master.h5', kept(run))
        with h5py.File(f'{where}/{name}/lyso_data_000001.h5', 'r') as f:
            data = f['entry/data/data']
            made[name] = [data.id.read_direct_chunk((i, 0, 0))[1] for i in range(len(data))]
    want(made['image'] == made['plain'] and len(made['plain']) > 8, 'chunks differ')
    # chunks of the file are in those of the run
    with open(f'{receive("image")}/lyso_images.arrow', 'rb') as stream:
        data = stream.read()
    want(all(chunk in data for chunk in made['image']), 'chunks are not the bytes of the run')
    with open(f'{receive("plain")}/lyso_images.arrow', 'rb') as stream:
        want(len(stream.read()) > 3 * len(data), 'images are not compressed')
    # lists of full images
    for name in made:
        export('--format', 'sparse', '--output', f'{where}/sparse_{name}', receive(name))
    lists = []
    for name in made:
        with h5py.File(f'{where}/sparse_{name}/lyso_sparse.h5', 'r') as f:
            group = f['entry_0000/sparse_frames']
            lists.append([group[key][()] for key in ('frame_ptr', 'index', 'intensity')])
    want(len(lists[0][1]) > 0 and all((a == b).all() for a, b in zip(*lists)), 'lists differ')


@case
def float_and_raw_images(where):
    run = receive('image')
    export('--output', f'{where}/i', run)
    export('--output', f'{where}/f', receive('float', 'output.value=float32'))
    export('--output', f'{where}/r', receive('raw', 'output.format=raw'))
    if not os.path.exists(FILTER):
        raise Skipped('h5py has no filter 32008: install bitshuffle')
    with h5py.File(f'{where}/i/lyso_master.h5') as i, h5py.File(f'{where}/f/lyso_master.h5') as f, \
            h5py.File(f'{where}/r/lyso_master.h5') as r:
        want((i['entry/data/data'][()] == f['entry/data/data'][()]).all(), 'rounded photons')
        want(r['entry/data/data'].dtype == '<u2' and r['entry/data/data'][0].max() > 1000)


@case
def fabio_reads_the_same_images(where):
    try:
        import fabio
    except ImportError as missing:
        raise Skipped(f'{missing}: install python3-fabio') from missing
    run = receive('image')
    export('--output', where, '--images-per-file', '4', run)
    made, frames = images(f'{run}/lyso_images.arrow'), kept(run)
    with fabio.open(f'{where}/lyso_master.h5') as f:
        want(f.nframes == len(frames), f.nframes, len(frames))
        for i, frame in enumerate(frames):
            want((f.get_frame(i).data == made[frame][0]).all(), frame)


def crystfel(where, name, *arguments):
    """@return peaks that CrystFEL finds, which are those of the file"""
    check = oracle('crystfel-check.py')
    if not os.path.exists(FILTER):
        raise Skipped('h5py has no filter 32008: install bitshuffle')
    done = subprocess.run(['/usr/bin/python3', check, '--geom', f'{where}/{name[0]}',
                           f'{where}/{name[1]}', *arguments], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    want(done.returncode == 0, done.stdout)
    return int(re.search(r'the same (\d+): ok', done.stdout)[1])


@case
def crystfel_finds_peaks_of_saturated_pixels(where):
    # so many photons that the brightest pixels are beyond int16
    run = receive('saturated', 'calibration.energy_kev=0.1', 'peaks.threshold=400')
    bright = sum((pixels == 32767).sum() for pixels, _ in images(f'{run}/lyso_images.arrow').values())
    want(bright > 10, bright)
    export('--output', where, '--frames', '1-12', run)
    with h5py.File(f'{where}/lyso_master.h5', 'r') as f:
        # DIALS uses values up to this one
        want(f['entry/instrument/detector/saturation_value'][()] == 32766)
    with open(f'{where}/lyso.geom', encoding='ascii') as stream:
        text = stream.read()
    # CrystFEL does not integrate reflections with larger values, but searches their peaks
    want('\nmax_adu = 32766\n' in text and 'flag_morethan' not in text, text)
    want(crystfel(where, ('lyso.geom', 'lyso_master.h5'), '--threshold', '400') > 20)


@case
def crystfel_finds_the_same_peaks(where):
    export('--output', where, '--frames', '1-12', receive('image'))
    want(crystfel(where, ('lyso.geom', 'lyso_master.h5')) > 20)


@case
def crystfel_finds_the_same_peaks_in_cxi(where):
    export('--format', 'cxi', '--output', where, '--frames', '1-12', receive('image'))
    want(crystfel(where, ('lyso_cxi.geom', 'lyso.cxi')) > 20)


def main():
    with tempfile.TemporaryDirectory() as where:
        runs['where'] = where
        return run_cases(sys.argv[2:])


sys.exit(main())
