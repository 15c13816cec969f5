"""Compiled passes of a head that looks values up: one sequence's answers, loss, gradients and metrics.

The head's output is linear in its weights, and so is the readout: with p_v the weight on keys of value v (the last v
stands for positions that bind nothing), the logits of the answer are sum_v p_v table[v]. So a row costs one sum over
its keys forwards and one backwards, whatever the dimension of the values.

    attention  a_ij = content[token_i, token_j] + bias[i - j] + c_i - c_j - lambda max(0, level_j - m_ij)
    answer     o = sum_v p_v table[v],  loss = log sum_u exp(o_u) - o_answer
"""

import math

import numpy as np
from numba import njit

from lab.ops.vector_math import exp

# As in the reference: softplus is linear beyond this many units.
SOFTPLUS_LINEAR = 40.0

# Columns of what `read_rows` returns for every row; see `lab.training.lookup`.
ROW_COLUMNS = (
    "loss", "right", "force_mass", "force_gap", "found", "found_gap",
    "live_loss", "live_excess", "live_tv", "live_exact", "live_mass", "live_window", "live_gap",
)  # fmt: skip


@njit(cache=True, nogil=True)
def _row_logits(i, tokens, content, bias, total, field, level, scale, smoothing, logits, slopes, firsts):
    """The logits of row i, and for every key the slope of its penalty and where its minimum is first attained."""
    query = tokens[i]
    minimum, first = math.inf, -1
    top = -math.inf
    for j in range(i, -1, -1):
        logit = content[query, tokens[j]]
        if len(bias):
            logit += bias[min(i - j, len(bias) - 1)]
        if len(total):
            logit += total[i] - total[j]
        if len(field):
            slopes[j] = 0.0
            firsts[j] = first
            if first >= 0:
                excess = level[j] - minimum
                if smoothing > 0.0 and abs(excess) < SOFTPLUS_LINEAR * smoothing:
                    fade = math.exp(-abs(excess) / smoothing)
                    logit -= scale * (max(excess, 0.0) + smoothing * math.log1p(fade))
                    slopes[j] = scale * (1.0 / (1.0 + fade) if excess > 0 else fade / (1.0 + fade))
                elif excess > 0:
                    logit -= scale * excess
                    slopes[j] = scale
            if field[j] <= minimum:  # scanning backwards, a tie goes to the earlier position
                minimum, first = field[j], j
        logits[j] = logit
        top = max(top, logit)
    return top


@njit(cache=True, nogil=True)
def _answer(i, values, logits, top, table, mass, output):
    """Writes weights over the logits, the weight on every value, and the answer's logits; returns the latter's norm."""
    mass[:] = 0.0
    sum_of_weights = 0.0
    for j in range(i + 1):
        logits[j] = exp(logits[j] - top)
    for j in range(i + 1):
        sum_of_weights += logits[j]
    for j in range(i + 1):
        logits[j] /= sum_of_weights
        mass[values[j]] += logits[j]
    highest = -math.inf
    for u in range(len(output)):
        output[u] = 0.0
        for v in range(len(mass)):
            output[u] += mass[v] * table[v, u]
        highest = max(highest, output[u])
    norm = 0.0
    for u in range(len(output)):
        norm += math.exp(output[u] - highest)
    return highest + math.log(norm)


@njit(cache=True, nogil=True)
def lookup_step(
    tokens, queries, values, answers, content, bias, total, field, level, scale, smoothing, table, gradients
):
    """Losses of one seed's batch, summed over its queries; their gradients are added to `gradients`.

    tokens, queries, values, answers (batch, length); content (vocab, vocab); bias (width,) or empty; total, field,
    level (batch, length) or (batch, 0); table (values + 1, values). gradients: arrays of the shapes of content, bias,
    total, field, level, table.
    """
    batch, length = tokens.shape
    d_content, d_bias, d_total, d_field, d_level, d_table = gradients
    logits, slopes, firsts = np.empty(length), np.zeros(length), np.full(length, -1)
    mass, output, d_mass = np.empty(len(table)), np.empty(table.shape[1]), np.empty(len(table))
    loss = 0.0
    for b in range(batch):
        for i in range(length):
            if queries[b, i] == 0:
                continue
            top = _row_logits(
                i, tokens[b], content, bias, total[b], field[b], level[b], scale, smoothing, logits, slopes, firsts
            )
            norm = _answer(i, values[b], logits, top, table, mass, output)
            loss += queries[b, i] * (norm - output[answers[b, i]])
            mean = 0.0
            for u in range(len(output)):
                output[u] = queries[b, i] * (math.exp(output[u] - norm) - (u == answers[b, i]))
            for v in range(len(mass)):
                d_mass[v] = 0.0
                for u in range(len(output)):
                    d_mass[v] += output[u] * table[v, u]
                    d_table[v, u] += mass[v] * output[u]
                mean += mass[v] * d_mass[v]
            for j in range(i + 1):
                change = logits[j] * (d_mass[values[b, j]] - mean)
                d_content[tokens[b, i], tokens[b, j]] += change
                if len(bias):
                    d_bias[min(i - j, len(bias) - 1)] += change
                if total.shape[1]:
                    d_total[b, i] += change
                    d_total[b, j] -= change
                if field.shape[1] and slopes[j] != 0.0:
                    d_level[b, j] -= change * slopes[j]
                    d_field[b, firsts[j]] += change * slopes[j]
    return loss


@njit(cache=True, nogil=True)
def read_rows(
    tokens, queries, values, answers, death, symbols, in_force, content, bias, total, field, level, scale, table, rows
):
    """Writes the metrics of every scored row of one seed's sequences to `rows` (batch, length, len(ROW_COLUMNS)).

    Arrays as in `lookup_step`; without a table (no rows) nothing is answered and its columns are nan.
    """
    batch, length = tokens.shape
    logits, weights, slopes, firsts = np.empty(length), np.empty(length), np.zeros(length), np.full(length, -1)
    mass, output = np.empty(len(table)), np.empty(table.shape[1])
    for b in range(batch):
        for i in range(length):
            if queries[b, i] == 0:
                continue
            top = _row_logits(
                i, tokens[b], content, bias, total[b], field[b], level[b], scale, 0.0, logits, slopes, firsts
            )
            weights[: i + 1] = logits[: i + 1]
            if len(table):
                norm = _answer(i, values[b], weights, top, table, mass, output)
                rows[b, i, 0] = norm - output[answers[b, i]]
                rows[b, i, 1] = np.argmax(output) == answers[b, i]
            else:
                sum_of_weights = 0.0
                for j in range(i + 1):
                    weights[j] = exp(logits[j] - top)
                for j in range(i + 1):
                    sum_of_weights += weights[j]
                weights[: i + 1] /= sum_of_weights
                rows[b, i, 0] = rows[b, i, 1] = math.nan
            _read_row(i, death[b], symbols[b], in_force[b, i], logits, weights, top, rows[b, i])


@njit(cache=True, nogil=True)
def _read_row(i, death, symbols, force, logits, weights, top, row):
    others, namesakes, tied = -math.inf, -math.inf, 0
    size, on_live, most, lowest, outside, log_mean = 0, 0.0, -math.inf, math.inf, -math.inf, 0.0
    heaviest = 0.0
    for j in range(i + 1):
        heaviest = max(heaviest, weights[j])
        if j != force:
            others = max(others, logits[j])
            if symbols[j] == symbols[i] and death[j] > 0:
                if logits[j] == logits[force]:
                    tied += 1
                namesakes = max(namesakes, logits[j])
        if i < death[j] and symbols[j] == symbols[i]:
            size += 1
            on_live += weights[j]
            log_mean += logits[j]
            lowest, most = min(lowest, logits[j]), max(most, logits[j])
        else:
            outside = max(outside, logits[j])
    off, exact = 0.0, True
    for j in range(i + 1):
        live = i < death[j] and symbols[j] == symbols[i]
        off += abs(weights[j] - (1.0 / size if live else 0.0))
        exact = exact and live == (weights[j] > 0.5 / size)
    row[2], row[3] = weights[force], logits[force] - others
    row[4], row[5] = (0.0 if namesakes > logits[force] else 1.0 / (1 + tied)), logits[force] - namesakes
    row[6] = top - math.log(heaviest) - log_mean / size
    row[7], row[8], row[9], row[10] = row[6] - math.log(size), off / 2, exact, on_live
    row[11], row[12] = most - lowest, lowest - outside
