#include <iostream>
#include <memory>
#include <string>

#include "apps/command_pages.h"
#include "apps/commands.h"
#include "base/plain/files.h"

namespace evenkeel::apps {

void add_man_command(CLI::App& program) {
  auto* command = program.add_subcommand("man", "the manual page, for man(1)");
  command->footer(
      "Example: evenkeel man > evenkeel.1 && man ./evenkeel.1\n\n"
      "Prints every command and flag as roff. `cmake --install` writes it to share/man/man1.");
  command->callback([&program] { std::cout << manual_page(program, std::string(version())); });
}

void add_completion_command(CLI::App& program) {
  auto shell = std::make_shared<std::string>();
  auto* command = program.add_subcommand("completion", "completion of commands and flags, for bash, zsh or fish");
  command->footer(
      "Example: evenkeel completion bash > ~/.local/share/bash-completion/completions/evenkeel\n"
      "         evenkeel completion zsh > ~/.zfunc/_evenkeel\n"
      "         evenkeel completion fish > ~/.config/fish/completions/evenkeel.fish\n\n"
      "Prints a script that the shell reads when it starts. `cmake --install` writes all three.");
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  command->callback([&program, shell] { std::cout << completion_script(program, *shell); });
}

}  // namespace evenkeel::apps
