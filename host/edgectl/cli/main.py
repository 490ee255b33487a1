"""Entry point: finds the command without importing the others, and ends in the right exit code."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

import click

from edgectl import __version__
from edgectl.cli.console import fail, wants_json
from edgectl.errors import EdgectlError, UsageError

__all__ = ["cli", "main"]

# name -> (module, one line for --help). Commands live one per file; nothing is imported until
# its command is called, so that --help and completion stay quick and never touch torch.
COMMANDS: dict[str, tuple[str, str]] = {
    "deploy": ("deploy", "Compile a model, push it to a Pi, check its outputs and time it."),
    "compile": ("compile", "Compile a model into a bundle, without any device."),
    "explain": ("explain", "Show what becomes of every operation of a model."),
    "bench": ("bench", "Time a model on a device by the rules of MLPerf."),
    "compare": ("compare", "Tell whether one model or bundle is slower than another."),
    "report": ("report", "Make pages and tables of benchmarks, also over time."),
    "profile": ("profile", "Show where the time goes on a device, by layer."),
    "tune": ("tune", "Look for the compile choices that make a model quickest."),
    "estimate": ("estimate", "Model what a model costs on a Pi, without any Pi."),
    "serve": ("serve", "Run a model on a device as an HTTP service."),
    "infer": ("infer", "Ask a service for one inference."),
    "inspect": ("inspect", "Show what is in a bundle."),
    "status": ("status", "Show what is installed on a device and what is current."),
    "history": ("history", "Show what happened to a device, and by whom."),
    "rollback": ("rollback", "Go back to the previous release; nothing is transferred."),
    "gc": ("gc", "Remove releases that nothing needs from a device."),
    "pin": ("pin", "Keep a release from being collected."),
    "unpin": ("pin:unpin", "Let a release be collected again."),
    "uninstall": ("uninstall", "Remove everything of edgectl from a device."),
    "keys": ("keys", "Keys that sign models, and which of them a device trusts."),
    "device": ("device", "Add, list, remove and look at devices."),
    "doctor": ("doctor", "Check this computer or a device, and say how to fix what fails."),
    "emulator": ("emulator", "A virtual Pi on this computer."),
    "targets": ("targets", "List the boards that models can be compiled for."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports ``edgectl.cli.MODULE`` and takes its ``command``, or NAME of ``MODULE:NAME``."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        place, _, name = COMMANDS[cmd_name][0].partition(":")
        module = importlib.import_module(f"edgectl.cli.{place}")
        command: click.Command = getattr(module, name or "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the table's own lines, which costs no import."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="edgectl")
def cli() -> None:
    """From a PyTorch model to right numbers and an honest latency on a Raspberry Pi.

    \b
      edgectl deploy model.pt2 --target rpi4 --device pi@raspberrypi.local
      edgectl deploy model.pt2 --target rpi4 --device emulator      (no Pi needed)
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and exits; every way out passes here."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    as_json, debug = wants_json(arguments), "--debug" in arguments
    try:
        code = cli.main(args=arguments, prog_name="edgectl", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        hint = (
            error.ctx.command_path + " --help"
            if isinstance(error, click.UsageError) and error.ctx
            else None
        )
        return fail(UsageError(error.format_message(), next_step=hint), as_json=as_json)
    except EdgectlError as error:
        if debug:
            traceback.print_exc()
        return fail(error, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        return fail(_InterruptedError("Interrupted."), as_json=as_json)
    except BrokenPipeError:
        sys.stderr.close()  # keeps the interpreter from complaining about the pipe at exit
        return 0
    except Exception as error:
        if debug:
            raise
        return fail(_internal(error), as_json=as_json)


class _InterruptedError(EdgectlError):
    exit_code = 130


def _internal(error: Exception) -> EdgectlError:
    from edgectl.settings import load_settings

    log = load_settings().log_dir / "internal-error.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(traceback.format_exception(error)))
    return EdgectlError(
        f"edgectl itself failed: {type(error).__name__}: {str(error)[:300]}",
        cause="This is a fault in edgectl, not in what you typed.",
        next_step=f"Please report it with {log}; --debug shows the traceback.",
    )


if __name__ == "__main__":
    main()
