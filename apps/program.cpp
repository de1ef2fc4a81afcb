#include "apps/program.h"

#include <iostream>

#include "apps/commands.h"
#include "base/error.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace evenkeel {
namespace {

/// Parses argv and calls one function per sub-command.
int run(int argc, char** argv) {
  CLI::App program("Federated LoRA fine-tuning of sparse mixture-of-experts language models across unequal clients");
  program.set_version_flag("--version", std::string("evenkeel ") + std::string(version()));
  program.require_subcommand(1);
  program.add_flag_callback(
      "--quiet", [] { log::set_level(log::Level::kWarning); }, "only warnings and errors");
  add_train_command(program);
  add_evaluate_command(program);
  add_score_command(program);
  add_bertscore_command(program);
  add_pg_alignment_command(program);
  add_generate_command(program);
  add_tokenize_command(program);
  add_pretrain_command(program);
  add_export_command(program);
  add_report_command(program);
  add_init_command(program);
  add_list_command(program);
  add_doctor_command(program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = program.exit(error);
    return code == 0 ? 0 : 1;
  }
  return 0;
}

}  // namespace

int run_program(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Interrupted& interrupted) {
    std::cerr << "evenkeel: " << interrupted.what() << '\n';
    return 130;
  } catch (const Error& error) {
    std::cerr << "evenkeel: " << error.what() << '\n';
    return error.exit_code();
  } catch (const std::exception& error) {
    // LibTorch's messages carry a stack after the first line; one line is what a user needs.
    const std::string text = error.what();
    std::cerr << "evenkeel: [internal] " << text.substr(0, text.find('\n')) << '\n';
    return 2;
  }
}

}  // namespace evenkeel
