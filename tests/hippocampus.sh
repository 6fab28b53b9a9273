#!/bin/sh
# hippocampus.sh: conf/hippocampus.conf learns what it is there for, and its label maps lie on the voxels of the head
# that they were cut from. Needs Debian's mricron-data and two to five minutes of two cores, so it is a part of
# `./quickstart check-long`.
set -eu
. "$(dirname -- "$0")/mpi_lib.sh"
python=${PYTHON3:-/usr/bin/python3} templates=/usr/share/mricron/templates
export MPIEXEC_TIMEOUT=3000
if [ ! -e $templates/aal.nii.gz ]; then
    skip "hippocampus" "mricron-data is not installed: apt-get install --no-install-recommends mricron-data"
    tap_done
fi
top=$(CDPATH='' cd -- "$here/.." && pwd)
ln -s "$top/conf" conf
check "the folder is made" "$python" "$top/contrib/hippocampus"
equal "but not over another" "$("$python" "$top/contrib/hippocampus" 2>&1 || echo $?)" \
    "hippocampus: hippocampus: File exists
73"
trains run 2 -c conf/hippocampus.conf -o run.hang_timeout=60
# dice KEY: of that class, in the last evaluation
dice() { sed -n '/"event":"evaluation"/s/.*"'"$1"'":\([0-9.]*\).*/\1/p' run/metrics.jsonl | tail -n 1; }
for class in 1 2; do
    d=$(dice "dice_$class")
    echo "Dice of class $class, of the half that was not trained on: $d" | note
    check "class $class: at least 0.7" awk -v d="$d" 'BEGIN { exit !(d >= 0.7) }'
done
job 2 -c conf/hippocampus.conf --init-from run --predict maps/
equal "predicts" "$code $(ls maps | tr '\n' ' ')" "0 montage.png scores.csv test-image.nii.gz "
if ! "$python" -c 'import nibabel' 2>/dev/null; then skip "overlay" "nibabel is not installed"; tap_done; fi
# At its place in the whole head, by the affines alone, each label of the prediction is counted against the atlas.
check "laid over the whole head by the affines, it is where the atlas has them" "$python" - $templates/aal.nii.gz <<'P'
import sys
import nibabel
import numpy as np
maps, atlas = nibabel.load("maps/test-image.nii.gz"), nibabel.load(sys.argv[1])
assert np.array_equal(maps.affine, nibabel.load("hippocampus/test-image.nii.gz").affine)
to = np.linalg.inv(atlas.affine) @ maps.affine
assert np.array_equal(to[:3, :3], np.eye(3)) and np.array_equal(to[:, 3], np.rint(to[:, 3])), to
at = to[:3, 3].astype(int)
part = np.asarray(atlas.dataobj)[tuple(slice(a, a + n) for a, n in zip(at, maps.shape))]
ours = np.asarray(maps.dataobj)
for label, (left, right) in {1: (37, 38), 2: (39, 40)}.items():
    a, b = ours == label, (part == left) | (part == right)
    assert 2 * (a & b).sum() / (a.sum() + b.sum()) >= 0.7, label
P
tap_done
