-- Lmod: copy to MODULEPATH/mpstaged/0.2.0.lua. The prefix is that of ./configure --prefix.
help([[mpstaged trains neural networks as pipelines of processes: man mpstaged]])
whatis("Name: mpstaged")
whatis("Version: 0.2.0")
whatis("Description: pipeline-parallel training of neural networks")

local prefix = os.getenv("MPSTAGED_PREFIX") or "/opt/mpstaged/0.2.0"
conflict("mpstaged")
-- mpirun must be that of the MPI library that it was built with:
-- depends_on("openmpi/5.0")
prepend_path("PATH", pathJoin(prefix, "bin"))
-- without MANPATH man finds the pages beside PATH
if os.getenv("MANPATH") then prepend_path("MANPATH", pathJoin(prefix, "share/man")) end
-- unset, XDG_DATA_DIRS means these two
if not os.getenv("XDG_DATA_DIRS") then append_path("XDG_DATA_DIRS", "/usr/local/share:/usr/share") end
prepend_path("XDG_DATA_DIRS", pathJoin(prefix, "share"))
-- mpirun looks for no X displays
pushenv("HWLOC_COMPONENTS", "-gl")
