#include "base/format/command_line.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

namespace evenkeel {
namespace {

/// Returns the words that a shell parses from the line, one per line.
std::string words_in_shell(const std::string& line) {
  auto* shell = ::popen(("printf '%s\\n' " + line).c_str(), "r");
  std::string text;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), shell) != nullptr) text += part.data();
  EXPECT_EQ(::pclose(shell), 0);
  return text;
}

TEST(CommandLine, QuotingGivesAShellTheSameWords) {
  const std::vector<std::string> words{"train",
                                       "my runs/a.toml",
                                       "--set",
                                       "method.name='x'",
                                       "$HOME",
                                       "",
                                       "a\"b\\c",
                                       "*",
                                       "~/x",
                                       "naïve",
                                       "train.optimizer={ lr = 1e-2 }"};
  std::string expected = "evenkeel\n";
  for (const auto& word : words) expected += word + "\n";
  EXPECT_EQ(words_in_shell(command_line(words)), expected);
}

TEST(CommandLine, DoesNotQuotePlainWords) {
  EXPECT_EQ(command_line({"train", "configs/demo.toml", "--set", "train.rounds=3", "--resume"}),
            "evenkeel train configs/demo.toml --set train.rounds=3 --resume");
}

TEST(CommandLine, BeginsWithTheProgramAsItWasCalled) {
  set_program_name("../my build/evenkeel");
  EXPECT_EQ(command_line({"list"}), "'../my build/evenkeel' list");
  set_program_name("");
  EXPECT_EQ(command_line({"list"}), "'../my build/evenkeel' list");
  set_program_name("evenkeel");
}

}  // namespace
}  // namespace evenkeel
