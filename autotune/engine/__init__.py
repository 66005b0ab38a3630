"""The measuring engine: everything between a plan and its report.

In the worker process, from the device up:

    arena.py      buffers between guards: uploaded, restored, poisoned
    report.py     how a trial ends: limits, report, fault
    sources.py    OpenCL C of the kernels that check and flush
    verify.py     outputs, guards and inputs checked on the device
    flush.py      caches cleared between runs
    prepare.py    plan -> kernels within the device's limits, arguments set
    launcher.py   built plans run: buffers restored, limits announced, spans taken
    trial.py      one plan: build, verify, time, verify again
    messages.py   what the search and its workers say to each other
    probe.py      a kernel known to be good: where it fails too, the machine is at fault
    serve.py      a worker's loop

In the search:

    memory.py     room for the data, on the host and on the device
    data.py       input data and expected outputs, computed and put where the workers load them
    tasks.py      configurations and requests on their way through the threads
    sizing.py     how many builders, how many configurations in flight
    pause.py      builders halted while a trial is on the clock
    supervise.py  one worker process: start, talk, end
    crew.py       threads that each keep one worker alive
    runtime.py    the device's lock, the folder of a run

Imports point up this list.
"""
