// Fuzzes a chat template: renders a conversation with and without a generation prompt.
#include <array>

#include "tests/fuzz/fuzz.h"
#include "tokenizer/chat_template.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  const tokenizer::ChatTemplate made(input, "template", {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  const std::array messages = {tokenizer::chat_message("system", "kind "),
                               tokenizer::chat_message("user", " Gr\xc3\xbc\xc3\x9f Gott\n"),
                               tokenizer::chat_message("assistant", "<think>\nhm\n</think>\n\nok")};
  const auto out = made.render(messages, false);
  for (const auto& [begin, end] : out.generated)
    if (begin > end || end > out.text.size()) fuzz::finding("a span outside of the text", std::to_string(end));
  made.render(std::span(messages).first(2), true);
}
