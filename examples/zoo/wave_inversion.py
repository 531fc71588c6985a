"""Full-waveform inversion: how fast sound is, place by place, from echoes. `python examples/zoo/wave_inversion.py`

A ring of receivers hears pulses sent from some of its places, as in an ultrasound scanner. The wave equation is a
recurrence in time; its adjoint, a wave that starts at the receivers and runs back, comes from `te.value_and_grad`.
"""

from typing import Any

import numpy as np

import tedsl as te

SIZE, STEPS, SHOTS, EARS = 40, 110, 6, 24
TURN = np.arange(EARS) * 2 * np.pi / EARS
RING = np.rint(SIZE / 2 - 0.5 + (SIZE / 2 - 3) * np.stack([np.sin(TURN), np.cos(TURN)])).astype("int32")


def record(speed: te.Tensor, pulse: te.Tensor) -> te.Tensor:
    """What each ear hears of each shot, (STEPS, SHOTS, EARS)."""
    ring = te.constant(RING, name="ring")

    def spread(wave: te.Tensor, t: te.Expr, shot: te.Expr, i: te.Expr, j: te.Expr) -> Any:
        def u(back: int, down: int, right: int) -> te.Expr:
            return wave.at(t - back, shot, i + down, j + right, mode="zero")

        laplacian = u(1, -1, 0) + u(1, 1, 0) + u(1, 0, -1) + u(1, 0, 1) - 4 * u(1, 0, 0)
        ear = shot * (EARS // SHOTS)
        pushed = te.select((i == ring[0, ear]) & (j == ring[1, ear]), pulse[t], 0.0)
        return 2 * u(1, 0, 0) - u(2, 0, 0) + speed[i, j] ** 2 * laplacian + pushed

    wave = te.scan((STEPS, SHOTS, SIZE, SIZE), spread, name="wave")
    heard: te.Tensor = te.compute(lambda t, s, r: wave[t, s, ring[0, r], ring[1, r]])
    return heard


@te.value_and_grad
def misfit(speed: te.Tensor, pulse: te.Tensor, heard: te.Tensor) -> te.Tensor:
    error: te.Tensor = ((record(speed, pulse) - heard) ** 2).mean()
    return error


def experiment() -> tuple[Any, Any, Any]:
    """The true speed, in cells per step, with a slow and a fast spot; the pulse; and what is heard."""
    i, j = np.mgrid[:SIZE, :SIZE]
    slow, fast = np.exp(-((i - 24) ** 2 + (j - 16) ** 2) / 40), np.exp(-((i - 14) ** 2 + (j - 26) ** 2) / 30)
    speed = (0.5 - 0.1 * slow + 0.06 * fast).astype("float32")
    time = (np.arange(STEPS) - 15) / 6
    pulse = (time * np.exp(-(time**2))).astype("float32")
    return speed, pulse, te.jit(record)(speed, pulse)


def main(steps: int = 80) -> list[float]:
    truth, pulse, heard = experiment()
    speed, momentum, losses = np.full_like(truth, 0.5), np.zeros_like(truth), []
    for k in range(steps):
        loss, slope = misfit(speed, pulse, heard)
        momentum = 0.9 * momentum + slope
        speed -= 0.004 * (1 - k / steps) * momentum / np.abs(momentum).max()
        losses.append(float(loss))
    for row in np.concatenate([truth, speed], 1)[::2]:
        print("".join("@%#*+=-:. "[int(np.clip(40 * (v - 0.38), 0, 9))] for v in row))
    print(f"misfit {losses[0]:.1e} -> {losses[-1]:.1e}")
    print(f"rms error of the speed {np.std(truth - 0.5):.4f} -> {np.std(truth - speed):.4f}")
    return losses


if __name__ == "__main__":
    main()
