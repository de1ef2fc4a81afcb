#include "data/builtin_text.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/random.h"
#include "data/builtin_world.h"

namespace evenkeel {
namespace {

using world::kRelationCount;

template <typename Range>
const auto& pick(const Range& range, RandomStream& stream) {
  return range[stream.below(std::size(range))];
}

int64_t random_animal(RandomStream& stream) { return static_cast<int64_t>(stream.below(world::animals().size())); }
int64_t random_relation(RandomStream& stream) { return static_cast<int64_t>(stream.below(kRelationCount)); }

/// "Card1: red Card2: blue": a list whose label word changes from document to document.
class LabelledList {
 public:
  explicit LabelledList(RandomStream& stream) {
    constexpr std::array<std::array<std::string_view, 2>, 5> kLabels = {
        {{"Item", "item"}, {"Card", "card"}, {"Box", "box"}, {"Number", "number"}, {"Place", "place"}}};
    const auto& label = pick(kLabels, stream);
    upper_ = label[0], lower_ = label[1];
  }

  std::string list(const std::vector<std::string>& entries) const {
    std::string text;
    for (size_t i = 0; i < entries.size(); ++i) text += concat(i == 0 ? "" : " ", upper_, i + 1, ": ", entries[i]);
    return text;
  }
  std::string entry(size_t index) const { return concat(lower_, index + 1); }

 private:
  std::string_view upper_, lower_;
};

std::string animal_story(RandomStream& stream) {
  const int64_t animal = random_animal(stream);
  std::string text;
  for (const int64_t relation : stream.permutation(kRelationCount))
    text += world::statement(animal, relation, world::value_of(animal, relation)) + ". ";
  for (int i = 0; i < 2; ++i) {
    const int64_t other = random_animal(stream);
    if (other == animal) continue;
    const bool bigger = world::size_of(animal) > world::size_of(other);
    text += concat("the ", world::animals()[animal], bigger ? " is bigger" : " is smaller", " than the ",
                   world::animals()[other], ". ");
  }
  return text;
}

/// Yes-or-no questions, as often yes as no.
std::string dialogue(RandomStream& stream) {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    const int64_t animal = random_animal(stream), relation = random_relation(stream);
    const int64_t truth = world::value_of(animal, relation);
    const auto count = static_cast<int64_t>(world::values(relation).size());
    const bool yes = stream.below(2) == 0;
    const int64_t asked = yes ? truth : (truth + 1 + static_cast<int64_t>(stream.below(count - 1))) % count;
    text += concat(world::yes_no_question(animal, relation, asked), "? ", yes ? "yes" : "no", "\n");
  }
  return text;
}

/// A list of values, then whom each belongs to.
std::string value_lists(RandomStream& stream) {
  const LabelledList labels(stream);
  const int64_t relation = random_relation(stream);
  auto order = stream.permutation(static_cast<int64_t>(world::values(relation).size()));
  order.resize(3 + stream.below(2));
  std::vector<std::string> entries;
  for (const int64_t value : order) entries.emplace_back(world::values(relation)[value]);
  std::string text = labels.list(entries) + "\n";
  for (int asked = 0; asked < 4;) {
    const int64_t animal = random_animal(stream);
    const auto place = std::find(order.begin(), order.end(), world::value_of(animal, relation));
    if (place == order.end()) continue;
    text += concat(world::open_question(animal, relation), "? ", labels.entry(place - order.begin()), "\n");
    ++asked;
  }
  return text;
}

/// A question, a list, the right place: one right entry among wrong ones.
std::string riddle(const LabelledList& labels, const std::string& question, std::string right,
                   std::vector<std::string> wrong, RandomStream& stream) {
  const auto place = static_cast<size_t>(stream.below(wrong.size() + 1));
  wrong.insert(wrong.begin() + place, std::move(right));
  return concat(question, "? ", labels.list(wrong), "\n", labels.entry(place), "\n");
}

std::string value_riddles(RandomStream& stream) {
  const LabelledList labels(stream);
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const int64_t animal = random_animal(stream), relation = random_relation(stream);
    const int64_t truth = world::value_of(animal, relation);
    std::vector<std::string> wrong;
    for (const int64_t value : stream.permutation(static_cast<int64_t>(world::values(relation).size())))
      if (value != truth && wrong.size() < 3) wrong.emplace_back(world::values(relation)[value]);
    text += riddle(labels, world::open_question(animal, relation), std::string(world::values(relation)[truth]), wrong,
                   stream);
  }
  return text;
}

std::string size_riddles(RandomStream& stream) {
  const LabelledList labels(stream);
  std::string text;
  for (int i = 0; i < 4; ++i) {
    const int64_t a = random_animal(stream), b = random_animal(stream);
    if (a == b) continue;
    const auto [small, big] = world::size_of(a) < world::size_of(b) ? std::pair(a, b) : std::pair(b, a);
    const bool asks_bigger = stream.below(2) == 0;
    const int64_t right = asks_bigger ? big : small, wrong = asks_bigger ? small : big;
    text += riddle(labels, asks_bigger ? "which is bigger" : "which is smaller", std::string(world::animals()[right]),
                   {std::string(world::animals()[wrong])}, stream);
  }
  return text;
}

std::string tool_riddles(RandomStream& stream) {
  const LabelledList labels(stream);
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const auto& tool = pick(world::tools(), stream);
    const auto& other = pick(world::tools(), stream);
    text += concat("use the ", tool.name, " to ", tool.purpose, ".\n");
    if (tool.name == other.name) continue;
    text += riddle(labels, concat("how to ", tool.purpose), concat("use the ", tool.name),
                   {concat("use the ", other.name)}, stream);
  }
  return text;
}

std::string routine_story(RandomStream& stream) {
  const auto& routine = pick(world::routines(), stream);
  return concat(routine.name, " they ", join(routine.steps, ", then "), ".\n");
}

std::string routine_riddles(RandomStream& stream) {
  const LabelledList labels(stream);
  std::string text = routine_story(stream);
  for (int i = 0; i < 2; ++i) {
    const auto& routine = pick(world::routines(), stream);
    const auto next = 1 + stream.below(routine.steps.size() - 1);
    std::vector<std::string> wrong;
    while (wrong.size() < 3) {
      const auto step = std::string(pick(pick(world::routines(), stream).steps, stream));
      if (step != routine.steps[next] && std::find(wrong.begin(), wrong.end(), step) == wrong.end())
        wrong.push_back(step);
    }
    text += riddle(labels, concat(routine.name, " they ", routine.steps[next - 1], ", then"),
                   std::string(routine.steps[next]), wrong, stream);
  }
  return text;
}

/// Office talk: the everyday words that instructions are made of.
std::string office_note(RandomStream& stream) {
  constexpr std::array<std::string_view, 8> kSentences = {
      "The note below describes a task for the day.",
      "Please write a response and choose the correct format.",
      "An instruction came with the request, and the answer completes it appropriately.",
      "The statement was true, the other one was false.",
      "Below that stands the following question: the given sentence has a blank to fill in.",
      "A good solution, a good ending and a good option were named.",
      "Response and instruction belong together, as question and answer do.",
      "Please answer the following request with a sentence that completes the task."};
  std::string text;
  for (int i = 0; i < 3; ++i) text += concat(pick(kSentences, stream), " ");
  return text;
}

std::string document(RandomStream& stream) {
  using Writer = std::string (*)(RandomStream&);
  struct Kind {
    double share;
    Writer write;
  };
  constexpr std::array<Kind, 9> kKinds = {{{0.16, animal_story},
                                           {0.17, dialogue},
                                           {0.15, value_lists},
                                           {0.17, value_riddles},
                                           {0.09, size_riddles},
                                           {0.09, tool_riddles},
                                           {0.04, routine_story},
                                           {0.10, routine_riddles},
                                           {0.03, office_note}}};
  std::array<double, kKinds.size()> shares;
  std::transform(kKinds.begin(), kKinds.end(), shares.begin(), [](const Kind& kind) { return kind.share; });
  return kKinds[static_cast<size_t>(stream.choose(shares))].write(stream);
}

}  // namespace

std::vector<std::string> builtin_documents(int64_t count, uint64_t seed) {
  std::vector<std::string> documents;
  documents.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    RandomStream stream(seed, "builtin-document", static_cast<uint64_t>(i));
    documents.push_back(document(stream));
  }
  return documents;
}

}  // namespace evenkeel
