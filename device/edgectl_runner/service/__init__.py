"""The inference service: an HTTP server on the device that speaks the Open Inference Protocol.

    supervisor  owns the listening socket, keeps one worker alive, swaps workers on a redeploy
    worker      loads the models, warms them, serves; one event loop and a thread per context
    control     starts, stops and describes the service for the host; one document in, one out

The standard library, NumPy, the IREE runtime and h11 (HTTP/1.1 as a state machine, no I/O of its
own) are all it needs. The frameworks that are usual elsewhere bring seven packages, over a second
of start on a small board, and no deadline for receiving a request, which would have to be added to
their innermost part.
"""
