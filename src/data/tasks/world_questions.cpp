#include "data/tasks/world_questions.h"

#include "base/plain/error.h"

namespace evenkeel::data {

using world::Subject;
using world::World;

Row question_row(std::string instruction, std::string answer) {
  return {.instruction = std::move(instruction),
          .input = "",
          .output = concat("the correct answer is ", answer),
          .answer = std::move(answer),
          .label = ""};
}

std::string format_line(std::string_view word, size_t count) {
  std::string text = "Answer format: ";
  for (size_t i = 0; i < count; ++i) text += concat(i == 0 ? "" : "/", word, i + 1);
  return text;
}

Row fact_row(const World& world, const Subject& subject, uint64_t off) {
  const auto count = static_cast<int64_t>(world.values(subject).size());
  const int64_t asked = (world.value_of(subject) + static_cast<int64_t>(off)) % count;
  return question_row(concat("Please answer the following question with true or false, question: ",
                             world.yes_no_question(subject, asked), "?\n\nAnswer format: true/false"),
                      off == 0 ? "true" : "false");
}

uint64_t false_values(const World& world, const Subject& subject) { return world.values(subject).size() - 1; }

int64_t right_choice(const World& world, const Subject& subject) { return world.value_of(subject) % kValueChoices; }

Row value_row(const World& world, const Subject& subject) {
  const int64_t place = right_choice(world, subject), first = world.value_of(subject) - place;
  return question_row(
      concat("Please choose the correct answer to the question: ", world.open_question(subject), "?\n\n",
             world::numbered("Answer", world.values(subject).subspan(static_cast<size_t>(first), kValueChoices), " "),
             "\n\n", format_line("answer", kValueChoices)),
      concat("answer", place + 1));
}

}  // namespace evenkeel::data
