"""The queue: nothing is lost, bounds hold, the oldest goes first, and cancelled requests free their places."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elmo.serve.api_error import ApiError
from elmo.serve.jobs import Job
from elmo.serve.request_queue import RequestQueue

ALL, TOP = Job(operation="vectors", layers="all"), Job(operation="vectors", layers="top")


def make_queue(**limits):
    return RequestQueue(**{"max_requests": 4, "max_tokens": 100, "batch_tokens": 10, "batch_texts": 3, **limits})


def sentence(length):
    return ["word"] * length


def test_batch_stops_at_the_token_budget_and_at_the_number_of_texts():
    queue = make_queue()
    queue.enter(ALL, [sentence(n) for n in (6, 4, 1, 1, 1, 1)])
    assert [[item.num_tokens for item in queue.take_batch()] for _ in range(3)] == [[6, 4], [1, 1, 1], [1]]
    assert queue.take_batch() == []


def test_text_longer_than_the_budget_has_a_batch_of_its_own():
    queue = make_queue()
    queue.enter(ALL, [sentence(2), sentence(50), sentence(2)])
    assert [len(queue.take_batch()[0].tokens) for _ in range(3)] == [2, 50, 2]


def test_batch_holds_one_kind_of_job_and_the_oldest_goes_first():
    queue = make_queue()
    queue.enter(TOP, [sentence(1)])
    queue.enter(ALL, [sentence(1)])
    queue.enter(TOP, [sentence(1)])
    assert [item.job for item in queue.take_batch()] == [TOP, TOP]
    assert [item.job for item in queue.take_batch()] == [ALL]


def test_waiting_requests_are_bounded_and_a_running_one_does_not_wait():
    queue = make_queue(max_requests=1)
    queue.enter(ALL, [sentence(1)])
    queue.take_batch()
    queue.enter(ALL, [sentence(1)])
    with pytest.raises(ApiError) as info:
        queue.enter(ALL, [sentence(1)])
    assert (info.value.status, info.value.retry_after) == (429, 1)


def test_tokens_of_unfinished_requests_are_bounded():
    queue = make_queue()
    first = queue.enter(ALL, [sentence(60)])
    queue.take_batch()  # it runs, and its vectors will need memory
    with pytest.raises(ApiError):
        queue.enter(ALL, [sentence(60)])
    queue.leave(first)
    queue.enter(ALL, [sentence(60)])


def test_retry_after_grows_with_the_queue():
    queue = make_queue(max_tokens=10**6)
    queue.record_batch(1000, 1.0, 1)
    queue.enter(ALL, [sentence(20_000)])
    assert 2 <= queue.retry_after() <= 60


def test_suspects_run_alone_before_all_others():
    queue = make_queue()
    queue.enter(ALL, [sentence(1), sentence(2)])
    batch = queue.take_batch()
    queue.enter(ALL, [sentence(3)])
    queue.return_suspects(batch)
    assert queue.num_waiting == 2
    assert [[item.num_tokens for item in queue.take_batch()] for _ in range(3)] == [[1], [2], [3]]
    assert queue.num_waiting == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from([ALL, TOP]), st.lists(st.integers(0, 12), min_size=1, max_size=5)),
            st.just("take"),
            st.just("cancel"),
            st.just("crash"),
        ),
        max_size=40,
    )
)
def test_every_sentence_leaves_once_or_is_cancelled(steps):
    queue = make_queue()
    open_requests, expected, seen = [], [], []
    for step in [*steps, *["take"] * 60]:
        if step == "take":
            batch = queue.take_batch()
            seen += [(id(item.request), item.index) for item in batch]
            assert len({item.job for item in batch}) <= 1
            assert len(batch) <= 1 or sum(item.num_tokens for item in batch) <= 10
        elif step == "crash":
            batch = queue.take_batch()
            queue.return_suspects(batch)
        elif step == "cancel":
            if open_requests:
                queue.leave(open_requests.pop())
        else:
            try:
                request = queue.enter(step[0], [sentence(length) for length in step[1]])
            except ApiError:
                continue
            open_requests.append(request)
            expected.append(request)
    wanted = {(id(r), i) for r in open_requests for i in range(len(r.results))}
    assert len(seen) == len(set(seen))
    assert wanted <= set(seen) <= {(id(r), i) for r in expected for i in range(len(r.results))}
    assert queue.num_waiting == 0
    for request in open_requests:
        queue.leave(request)
    assert queue.num_tokens == 0
