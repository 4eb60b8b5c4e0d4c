from whatwhere.cli import main

main()
