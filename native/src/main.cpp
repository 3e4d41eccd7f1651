#include "cli.hpp"

int main(int count, char** words) { return partc::run(count, words); }
