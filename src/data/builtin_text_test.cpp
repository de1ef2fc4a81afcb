#include "data/builtin_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "data/builtin_world.h"
#include "data/prompt.h"
#include "data/tasks.h"

namespace evenkeel::data {
namespace {

std::string all_of(const std::vector<std::string>& documents) { return join(documents, "\n"); }

TEST(BuiltinText, ADocumentDependsOnlyOnSeedAndIndex) {
  const auto few = builtin_documents(7, 42), many = builtin_documents(90, 42);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  EXPECT_NE(builtin_documents(7, 43), few);
}

TEST(BuiltinText, DocumentsAreShortVariedAndNeverEmpty) {
  const auto documents = builtin_documents(500, 42);
  for (const auto& document : documents) {
    EXPECT_FALSE(document.empty());
    EXPECT_LT(document.size(), 2000u);
  }
  EXPECT_GT(std::set<std::string>(documents.begin(), documents.end()).size(), 450u);
}

TEST(BuiltinText, MentionsEveryAnimalAndEveryTool) {
  const auto text = all_of(builtin_documents(3000, 42));
  for (const auto& animal : world::animals()) EXPECT_NE(text.find(animal), std::string::npos) << animal;
  for (const auto& tool : world::tools()) EXPECT_NE(text.find(tool.purpose), std::string::npos) << tool.purpose;
}

TEST(BuiltinText, NeverContainsTheInstructionFormat) {
  const auto text = all_of(builtin_documents(3000, 42));
  for (const auto* words : {"### Instruction", "### Response", "Answer format:", "the correct answer is"})
    EXPECT_EQ(text.find(words), std::string::npos) << words;
  for (const auto& row : training_rows("builtin", {.limit = 200}).rows)
    ASSERT_EQ(text.find(row.instruction), std::string::npos) << row.instruction;
}

TEST(BuiltinWorld, EveryValueHasTheSameNumberOfEntities) {
  for (const auto size : {world::WorldSize::kSmall, world::WorldSize::kLarge}) {
    const auto& world = world::world_of(size);
    for (size_t t = 0; t < world.topics().size(); ++t) {
      const auto& topic = world.topics()[t];
      const auto entities = static_cast<int64_t>(topic.entities.size());
      for (size_t r = 0; r < topic.relations.size(); ++r) {
        world::Subject subject{.topic = static_cast<int64_t>(t), .relation = static_cast<int64_t>(r)};
        std::vector<int64_t> counts(world.values(subject).size());
        for (; subject.entity < entities; ++subject.entity) ++counts[static_cast<size_t>(world.value_of(subject))];
        for (const auto count : counts) EXPECT_EQ(count, entities / static_cast<int64_t>(counts.size())) << topic.name;
      }
    }
  }
}

TEST(BuiltinWorld, SizesAreAllDifferent) {
  std::set<int64_t> sizes;
  const auto animals = static_cast<int64_t>(world::animals().size());
  for (int64_t animal = 0; animal < animals; ++animal) sizes.insert(world::size_of(animal));
  EXPECT_EQ(static_cast<int64_t>(sizes.size()), animals);
}

TEST(LargeWorld, HasFourTopicsOf120EntitiesAndSixRelationsInSixWordings) {
  const auto& large = world::large_world();
  std::set<std::string> names;
  EXPECT_EQ(large.topics().size(), 4u);
  EXPECT_EQ(large.wordings(), 6);
  for (const auto& topic : large.topics()) {
    EXPECT_EQ(topic.entities.size(), 120u);
    EXPECT_EQ(topic.relations.size(), 6u);
    names.insert(topic.entities.begin(), topic.entities.end());
  }
  EXPECT_EQ(names.size(), 480u) << "an entity of one name belongs to one topic";
}

TEST(LargeWorld, EveryWordingStatesTheFact) {
  const world::Subject home{.topic = 0, .entity = 5, .relation = 1};
  std::vector<std::string> stated;
  for (int64_t wording = 0; wording < 6; ++wording) stated.push_back(world::large_world().statement(home, 2, wording));
  EXPECT_EQ(stated, (std::vector<std::string>{
                        "the balan lives in the desert", "they say that the balan lives in the desert",
                        "look at the balan, it lives in the desert", "the home of the balan: desert",
                        "desert is the home of the balan", "as everyone knows, the balan lives in the desert"}));
  EXPECT_EQ(world::large_world().yes_no_question(home, 2), "does the balan live in the desert");
  EXPECT_EQ(world::large_world().open_question(home), "where does the balan live");
}

TEST(LargeWorld, TheTextStatesFactsOfAllTopicsInAllWordingsAndNothingOfTheSmallWorld) {
  const auto text = all_of(builtin_documents(4000, 42, world::WorldSize::kLarge));
  for (const auto& topic : world::large_world().topics())
    for (const auto& name : topic.entities) EXPECT_NE(text.find(name), std::string::npos) << name;
  for (const auto* words :
       {"they say that the ", "look at the ", " of the ", " is the home of the ", "as everyone knows, "})
    EXPECT_NE(text.find(words), std::string::npos) << words;
  for (const auto* words :
       {"sweep the floor", "in the kitchen they", "is bigger than", "### Instruction", "Answer format:"})
    EXPECT_EQ(text.find(words), std::string::npos) << words;
  for (size_t t = 0; t < 4; ++t)
    for (int64_t entity = 0; entity < 120; entity += 7) {
      const world::Subject subject{.topic = static_cast<int64_t>(t), .entity = entity, .relation = 1};
      const auto wrong = (world::large_world().value_of(subject) + 1) % 8;
      EXPECT_EQ(text.find(world::large_world().statement(subject, wrong) + "."), std::string::npos) << "a false fact";
    }
}

int64_t times_named(const std::string& text, const std::string& name) {
  int64_t times = 0;
  for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) ++times;
  return times;
}

TEST(LargeWorld, TheTextNamesTheFirstEntitiesOfATopicMoreOftenThanTheLast) {
  const auto text = all_of(builtin_documents(4000, 42, world::WorldSize::kLarge));
  for (const auto& topic : world::large_world().topics()) {
    double all = 0, first = 0, last = 0;
    for (size_t i = 0; i < topic.entities.size(); ++i) {
      const auto times = static_cast<double>(times_named(text, topic.entities[i]));
      all += times, first += i < 12 ? times : 0, last += i >= 108 ? times : 0;
    }
    EXPECT_NEAR(first / all, std::sqrt(0.1), 0.03) << topic.name;
    EXPECT_NEAR(last / all, 1 - std::sqrt(0.9), 0.03) << topic.name;
  }
}

TEST(LargeWorld, EveryTaskHas400QuestionsOnFactsOfItsOwn) {
  for (const auto& task : tasks()) {
    if (task.family != "builtin_large") continue;
    std::set<std::string> questions;
    for (const auto& row : test_rows(task, {}).rows) questions.insert(row.instruction);
    EXPECT_EQ(questions.size(), 400u) << task.name;
    EXPECT_LT(majority_rate(test_rows(task, {}).rows), task.answers.size() == 2 ? 0.501 : 0.32) << task.name;
  }
}

TEST(LargeWorld, TrainingRowsOfATopicAreThoseOfItsTaskAndOfTheFactsAboutIt) {
  const auto by_task = training_rows("builtin_large", {.limit = 500}),
             by_topic = training_rows("builtin_large", {.limit = 500, .label = "topic"});
  std::map<std::string, std::set<std::string>> topics_of_task;
  for (size_t i = 0; i < 500; ++i) {
    EXPECT_EQ(by_task.rows[i].instruction, by_topic.rows[i].instruction);
    topics_of_task[by_task.rows[i].label].insert(by_topic.rows[i].label);
  }
  ASSERT_EQ(topics_of_task.size(), 5u);
  for (const auto& [task, topics] : topics_of_task)
    EXPECT_EQ(topics.size(), task == "builtin_large:facts" ? 4u : 1u) << task;
}

/// Returns whether the text of the world states what a row of the changed world states.
bool is_in_the_text(const Row& row) {
  static const auto sentences = [] {
    std::set<std::string> all;
    for (const auto& document : builtin_documents(60000, 42, world::WorldSize::kLarge))
      for (size_t start = 0, end = 0; (end = document.find('.', start)) != document.npos; start = end + 2)
        all.insert(document.substr(start, end - start));
    return all;
  }();
  return sentences.contains(row.instruction + row.output);
}

TEST(ChangedWorld, AsksForFactsThatTheTextStatesOtherwise) {
  for (const auto& task : tasks()) {
    if (task.family != "builtin_changed") continue;
    std::set<std::string> questions;
    int64_t stated_otherwise = 0;
    for (const auto& row : test_rows(task, {}).rows) {
      questions.insert(row.instruction);
      EXPECT_EQ(row.options.size(), 8u);
      EXPECT_EQ(std::ranges::count(row.options, row.answer), 1) << row.instruction;
      EXPECT_FALSE(is_in_the_text(row)) << row.instruction << row.output;
      for (const auto& option : row.options) {
        auto other = row;
        other.output = " " + option;
        stated_otherwise += is_in_the_text(other);
      }
    }
    EXPECT_EQ(questions.size(), 240u) << task.name;
    EXPECT_GT(stated_otherwise, 200) << task.name;
    EXPECT_LT(majority_rate(test_rows(task, {}).rows), 0.05) << task.name;
  }
}

TEST(ChangedWorld, TrainingRowsStateTheFactsOfTheQuestionsInFourOtherWordings) {
  std::map<std::string, std::set<std::string>> wordings;
  for (const auto& row : training_rows("builtin_changed", {}).rows) wordings[row.answer].insert(row.instruction);
  for (const auto& task : tasks()) {
    if (task.family != "builtin_changed") continue;
    for (const auto& row : test_rows(task, {}).rows) {
      const auto& stated = wordings.at(row.answer);
      EXPECT_EQ(stated.count(row.instruction), 0u);
      EXPECT_EQ(stated.count("they say that " + row.instruction), 1u) << row.instruction;
      EXPECT_EQ(stated.count("as everyone knows, " + row.instruction), 1u) << row.instruction;
    }
  }
  EXPECT_EQ(training_rows("builtin_changed", {}).rows.size(), 4u * 40 * 6 * 4);
  EXPECT_EQ(training_rows("builtin_changed", {.limit = 100}).rows.size(), 100u);
}

TEST(BuiltinText, TheSmallWorldHasTheBitsOfTheBuiltInModels) {
  EXPECT_EQ(sha256(all_of(builtin_documents(3000, 42))),
            "52e237532702041d6fb00361d6c365972e78b4e7fff0fd5e575f734a412e8ed7");
  std::string rows;
  for (const auto& row : training_rows("builtin", {}).rows) rows += row.instruction + row.output + row.label;
  for (const auto& task : tasks())
    if (task.family == "builtin")
      for (const auto& row : test_rows(task, {}).rows) rows += row.instruction + row.output + row.label;
  EXPECT_EQ(sha256(rows), "ae827e6a9d0836dfb40683c41b33cb5efbd4b1683e2aedd389a3f1d93488fbb8");
}

TEST(BuiltinWorld, HeldOutSubjectsHaveKeysOfTheirOwn) {
  EXPECT_EQ(world::held_out(0, 0, 999), world::held_out(0, 0, 999));
  for (const uint64_t b : {1000, 1001, 2000}) EXPECT_THROW(world::held_out(0, 0, b), Error) << b;
}

}  // namespace
}  // namespace evenkeel::data
