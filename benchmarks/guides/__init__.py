"""What other tools' guides make of public scripts, beside what autodist makes of them."""
