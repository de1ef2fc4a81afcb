#include "apps/program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "apps/built_revision.h"
#include "apps/commands.h"
#include "apps/library_exit.h"
#include "apps/output.h"
#include "apps/path_flags.h"
#include "base/format/command_line.h"
#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/plain/log.h"
#include "base/plain/os_error.h"
#include "base/plain/text.h"
#include "base/system/device.h"
#include "base/system/events.h"
#include "base/system/interrupt.h"
#include "base/system/revision.h"
#include "cluster/rank_ends.h"

namespace evenkeel::apps {
namespace {

constexpr int kInterruptedCode = 130;

/// Checks that arguments are UTF-8. Other text could be written into a run folder but not read back from TOML and JSON
/// (docs/decisions/0022-what-strangers-hand-in.md).
void check_text_of_arguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    EK_CHECK(is_utf8(argv[i]), kConfig, "argument ", i, " is ", shown(argv[i]), ", allowed: text and paths of UTF-8");
  std::error_code error;
  const auto folder = fs::current_path(error).string();
  EK_CHECK(error || is_utf8(folder), kConfig, "the working folder is ", shown(folder), ", allowed: a path of UTF-8");
}

/// Returns the edit distance of two words.
size_t distance(std::string_view x, std::string_view y) {
  std::vector<size_t> row(y.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < x.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < y.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j + 1] + 1, row[j] + 1, diagonal + (x[i] == y[j] ? 0 : 1)}));
  }
  return row.back();
}

/// Checks the first word. \throws kConfig when it is no command, naming the most similar command
void check_command(const CLI::App& program, int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word.empty() || word.starts_with('-') || word.size() > 40) return;
  std::vector<std::string> known;
  for (const auto* command : program.get_subcommands({})) known.push_back(command->get_name());
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  const auto closest = std::min_element(
      known.begin(), known.end(), [&](const auto& x, const auto& y) { return distance(word, x) < distance(word, y); });
  const bool like = distance(word, *closest) <= 2;
  fail(kConfig, "\"", shown(word), "\" is no command", like ? concat(", did you mean ", *closest, "?") : std::string(),
       "; commands: ", join(known));
}

/// Parses argv and calls one function per sub-command.
int run(int argc, char** argv) {
  check_text_of_arguments(argc, argv);
  if (argc > 0) set_program_name(argv[0]);
  set_revision(std::string(built_revision()));
  CLI::App program("Federated LoRA fine-tuning of sparse mixture-of-experts language models across unequal clients");
  program.set_version_flag("--version", std::string("evenkeel ") + std::string(version()));
  program.require_subcommand(1);
  program.fallthrough();  // --quiet may stand behind the command
  program.add_flag_callback(
      "--quiet", [] { log::set_level(log::Level::kWarning); }, "only warnings and errors");
  add_demo_command(program);
  add_train_command(program);
  add_serve_command(program);
  add_node_command(program);
  add_keygen_command(program);
  add_privacy_command(program);
  add_status_command(program);
  add_study_command(program);
  add_evaluate_command(program);
  add_score_command(program);
  add_bertscore_command(program);
  add_gradient_bias_command(program);
  add_pg_alignment_command(program);
  add_generate_command(program);
  add_tokenize_command(program);
  add_pretrain_command(program);
  add_export_command(program);
  add_report_command(program);
  add_init_command(program);
  add_list_command(program);
  add_doctor_command(program);
  add_completion_command(program);
  add_man_command(program);
  expand_home_in_paths(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // --help and --version
    check_command(program, argc, argv);
    fail(kConfig, error.what(), "; run with --help for more information");
  }
  return 0;
}

/// Prints an error on stderr and writes the last event; a rank of --ranks leaves both to the process that started it.
/// Returns the exit code.
int say(const Error& error) {
  if (cluster::tell_starter(error)) return error.exit_code();
  std::cerr << "evenkeel: " << error.what() << '\n';
  events::write_last("error",
                     {{"kind", to_string(error.kind())}, {"message", error.what()}, {"exit_code", error.exit_code()}});
  return error.exit_code();
}

int say(const Interrupted& interrupted) {
  if (cluster::tell_starter(interrupted)) return kInterruptedCode;
  std::cerr << "evenkeel: " << interrupted.what() << '\n';
  events::write_last("interrupted", {{"message", interrupted.what()}, {"exit_code", kInterruptedCode}});
  return kInterruptedCode;
}

/// Makes an Error from an exception of LibTorch. Only the first line is kept; the others are a stack trace.
Error from_library(const std::exception& error) {
  if (auto full = device_memory_message(error); !full.empty()) return Error(kIo, std::move(full));
  const std::string_view text = error.what();
  if (text.find("can't allocate memory") != text.npos || text.find("not enough memory") != text.npos)
    return Error(kIo, concat("out of memory: ", text.substr(0, text.find('\n'))));
  return Error(kInternal, std::string(text.substr(0, text.find('\n'))));
}

Error out_of_memory() {
  return Error(kIo, "out of memory: the machine has not what this command needs; smaller sizes need less");
}

/// Runs the command and returns its exit code. An error is printed as one line.
int exit_code_of(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::ios_base::failure&) {
    return 0;  // stdout takes no more: whether that is an error, Output::finish() knows
  } catch (const Interrupted& interrupted) {
    return say(interrupted);
  } catch (const Error& error) {
    return say(error);
  } catch (const fs::filesystem_error& error) {
    return say(Error(kIo, concat(shown(error.path1().string()), ": ", os_error_text(error.code().value()))));
  } catch (const std::system_error& error) {  // of a thread
    return say(os_error(error));
  } catch (const std::bad_alloc&) {
    return say(out_of_memory());
  } catch (const std::length_error&) {  // of a container: as many as no machine has
    return say(out_of_memory());
  } catch (const std::exception& error) {
    return say(from_library(error));
  } catch (...) {
    return say(Error(kInternal, "an error of an unknown kind"));
  }
}

}  // namespace

int run_program(int argc, char** argv) {
  Output output;
  const LibraryExit library_exit([](const Error& error) { return say(error); });
  return output.finish(exit_code_of(argc, argv));
}

void run_and_exit(int argc, char** argv) {
  const int code = run_program(argc, argv);
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace evenkeel::apps
