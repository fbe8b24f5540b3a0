"""Ways a connection fails that no HTTP answer describes. Each is a script for one accepted connection."""

import asyncio
import gzip
import os

from tests.faults.answers import JSON, created, http, pod, raw, status
from tests.faults.server import Peer, Script

STALL_S = 0.05


# Before or in the TLS handshake: no byte of the request has left.


async def reset_at_accept(peer: Peer) -> None:
    peer.reset()


async def fin_at_accept(peer: Peer) -> None:
    await peer.close()


async def plain_http_peer(peer: Peer) -> None:
    await peer.reader.read(1)
    await peer.send(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
    await peer.close()


async def ssh_banner(peer: Peer) -> None:
    await peer.send(b"SSH-2.0-OpenSSH_9.6\r\n")
    await peer.closed_by_client()


async def handshake_fin(peer: Peer) -> None:
    await peer.reader.read(65536)
    await peer.close()


async def handshake_reset(peer: Peer) -> None:
    await peer.reader.read(65536)
    peer.reset()


async def handshake_alert(peer: Peer) -> None:
    await peer.reader.read(65536)
    await peer.send(b"\x15\x03\x03\x00\x02\x02\x28")  # fatal handshake_failure
    await peer.close()


async def handshake_hangs(peer: Peer) -> None:
    await peer.closed_by_client()


async def handshake_drips(peer: Peer) -> None:
    await peer.reader.read(65536)
    await peer.drip(b"\x16\x03\x03\x00\x7a" + bytes(1000), STALL_S)


# After the handshake, around the request: it may have been committed.


async def fin_after_request(peer: Peer) -> None:
    await peer.tls()
    await peer.request()
    await peer.close()


async def reset_after_request(peer: Peer) -> None:
    await peer.tls()
    await peer.request()
    peer.reset()


async def reset_after_handshake(peer: Peer) -> None:
    await peer.tls()
    peer.reset()


async def fin_after_handshake(peer: Peer) -> None:
    await peer.tls()
    await peer.close()


async def silence_after_request(peer: Peer) -> None:
    await peer.tls()
    await peer.request()
    await peer.closed_by_client()


async def damaged_tls_record(peer: Peer) -> None:
    await peer.tls()
    await peer.request()
    transport = peer.writer.get_extra_info("socket")
    # Straight onto the wire, past the TLS layer: what a broken middlebox does to a record.
    os.write(transport.fileno(), b"\x17\x03\x03\x00\x20" + bytes(32))
    await peer.closed_by_client()


def answer_cut_by_fin(length: int) -> Script:
    """The first `length` bytes of a good 201, then FIN."""

    async def script(peer: Peer) -> None:
        await peer.tls()
        await peer.send(created(await peer.request())[:length])
        await peer.close()

    return script


def answer_cut_by_reset(length: int) -> Script:
    async def script(peer: Peer) -> None:
        await peer.tls()
        await peer.send(created(await peer.request())[:length])
        await asyncio.sleep(0.02)  # let the bytes go first: a reset discards what is still queued
        peer.reset()

    return script


async def chunked_answer_cut(peer: Peer) -> None:
    await peer.tls()
    body = raw(pod(await peer.request()))
    head = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    await peer.send(head + f"{len(body):x}\r\n".encode() + body[: len(body) // 2])
    await peer.close()


async def chunked_answer_without_last_chunk(peer: Peer) -> None:
    await peer.tls()
    body = raw(pod(await peer.request()))
    head = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    await peer.send(head + f"{len(body):x}\r\n".encode() + body + b"\r\n")
    await peer.close()


async def chunked_answer_with_a_bad_size(peer: Peer) -> None:
    await peer.tls()
    await peer.request()
    await peer.send(b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")
    await peer.closed_by_client()


async def gzip_that_is_none(peer: Peer) -> None:
    await peer.tls()
    await peer.send(http(201, {**JSON, "Content-Encoding": "gzip"}, raw(pod(await peer.request()))))
    await peer.closed_by_client()


async def gzip_cut(peer: Peer) -> None:
    await peer.tls()
    packed = gzip.compress(raw(pod(await peer.request())))
    await peer.send(http(201, {**JSON, "Content-Encoding": "gzip"}, packed[: len(packed) // 2]))
    await peer.closed_by_client()


# Slower than any deadline.


async def headers_drip(peer: Peer) -> None:
    await peer.tls()
    await peer.drip(created(await peer.request()), STALL_S)


async def body_drips(peer: Peer) -> None:
    await peer.tls()
    head, body = created(await peer.request()).split(b"\r\n\r\n", 1)
    await peer.send(head + b"\r\n\r\n")
    await peer.drip(body, STALL_S)


async def body_stalls(peer: Peer) -> None:
    await peer.tls()
    await peer.send(created(await peer.request())[:-10])
    await peer.closed_by_client()


async def refusal_whose_body_stalls(peer: Peer) -> None:
    await peer.tls()
    await peer.request()
    await peer.send(http(422, JSON, status(422, "Invalid", "no"))[:-10])
    await peer.closed_by_client()


async def endless_informational(peer: Peer) -> None:
    await peer.tls()
    await peer.request()
    while not peer.writer.is_closing():
        await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await asyncio.sleep(STALL_S)


async def endless_body(peer: Peer) -> None:
    await peer.tls()
    await peer.request()
    await peer.send(b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\r\n")
    while not peer.writer.is_closing():
        await peer.send(b" " * 65536)
        await asyncio.sleep(0)  # a client that reads fast must not keep the server's loop for itself


async def request_never_read(peer: Peer) -> None:
    await peer.tls()
    await asyncio.Event().wait()
