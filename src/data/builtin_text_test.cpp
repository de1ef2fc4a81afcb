#include "data/builtin_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/plain/error.h"
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
  for (const auto animal : world::animals()) EXPECT_NE(text.find(animal), std::string::npos) << animal;
  for (const auto& tool : world::tools()) EXPECT_NE(text.find(tool.purpose), std::string::npos) << tool.purpose;
}

TEST(BuiltinText, NeverContainsTheInstructionFormat) {
  const auto text = all_of(builtin_documents(3000, 42));
  for (const auto* words : {"### Instruction", "### Response", "Answer format:", "the correct answer is"})
    EXPECT_EQ(text.find(words), std::string::npos) << words;
  for (const auto& row : training_rows("builtin", {.limit = 200}).rows)
    ASSERT_EQ(text.find(row.instruction), std::string::npos) << row.instruction;
}

TEST(BuiltinWorld, EveryValueHasTheSameNumberOfAnimals) {
  const auto animals = static_cast<int64_t>(world::animals().size());
  for (int64_t relation = 0; relation < world::kRelationCount; ++relation) {
    std::vector<int64_t> counts(world::values(relation).size());
    for (int64_t animal = 0; animal < animals; ++animal)
      ++counts[static_cast<size_t>(world::value_of(animal, relation))];
    for (const auto count : counts) EXPECT_EQ(count, animals / static_cast<int64_t>(counts.size()));
  }
}

TEST(BuiltinWorld, SizesAreAllDifferent) {
  std::set<int64_t> sizes;
  for (size_t animal = 0; animal < world::animals().size(); ++animal)
    sizes.insert(world::size_of(static_cast<int64_t>(animal)));
  EXPECT_EQ(sizes.size(), world::animals().size());
}

TEST(BuiltinWorld, HeldOutSubjectsHaveKeysOfTheirOwn) {
  EXPECT_EQ(world::held_out(0, 0, 999), world::held_out(0, 0, 999));
  for (const uint64_t b : {1000, 1001, 2000}) EXPECT_THROW(world::held_out(0, 0, b), Error) << b;
}

}  // namespace
}  // namespace evenkeel::data
